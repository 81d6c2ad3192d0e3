//! TCP edges.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use ginnel_api::remote::edges::modules::tcp_modules;
use ginnel_api::remote::edges::tcp::TcpEdge;
use ginnel_base::logging::or_debug;
use ginnel_gateway::Gateway;
use ginnel_gateway::metrics::EdgeMetrics;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleBuilder};
use ginnel_gateway::routing::route::Route;
use ginnel_gateway::routing::virtual_host::VirtualHost;
use ginnel_net::Listener;
use ginnel_policy::Scope;
use ginnel_store::{self as store, View};

use crate::check::host_port;
use crate::publish::backends::Backends;
use crate::publish::modules::{ModuleCompiler, build_modules, build_stored};

/// The edges and the ports on which they listen.
pub(super) struct TcpEdges {
    gateway: Gateway,
    /// Looked at as well by whoever checks the ports of a change that is not stored yet.
    edges: Mutex<HashMap<String, TcpListeners>>,
}

/// An edge, and the ports on which it listens.
#[derive(Default)]
struct TcpListeners {
    virtual_host: Arc<ArcSwap<VirtualHost>>,
    /// None where listening failed; it is tried again.
    listeners: BTreeMap<u16, Option<Listener>>,
}

impl TcpEdges {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, edges: Mutex::default() }
    }

    /// Publishes an edge, which may be gone.
    pub(super) fn refresh(
        &self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
        id: &str,
    ) -> Result<(), store::StoreError> {
        let Some(edge) = view.find::<TcpEdge>(id)? else {
            self.remove(id);
            modules.forget(id);
            return Ok(());
        };
        let ports = ports(edge.hostports.as_deref().unwrap_or_default());
        let virtual_host =
            VirtualHost::of(route(edge, modules, backends, self.gateway.edge_metrics(id)));
        self.publish(id, ports, virtual_host);
        Ok(())
    }

    /// Serves what is at ports, in place of those that it had.
    pub(super) fn publish(&self, id: &str, ports: BTreeSet<u16>, virtual_host: VirtualHost) {
        let mut edges = self.edges();
        let known = edges.entry(id.to_owned()).or_default();
        known.virtual_host.store(Arc::new(virtual_host));
        known.listeners.retain(|port, _| ports.contains(port));
        for port in ports {
            known.listeners.entry(port).or_default();
        }
        known.listen(&self.gateway);
    }

    /// Takes back what is gone.
    pub(super) fn remove(&self, id: &str) {
        self.edges().remove(id);
    }

    /// The identifiers of all edges.
    pub(super) fn ids(&self) -> Vec<String> {
        self.edges().keys().cloned().collect()
    }

    /// The first of an edge's ports that it cannot have, because somebody else listens there.
    pub(super) fn taken_port(&self, edge: &str, hostports: &[String]) -> Option<u16> {
        let edges = self.edges();
        let own = edges.get(edge);
        ports(hostports)
            .into_iter()
            .find(|port| !own.is_some_and(|own| own.has(*port)) && !self.gateway.can_listen(*port))
    }

    /// The ports that edges should have and that somebody else has, each with its edge.
    pub(super) fn missing_ports(&self) -> Vec<(String, u16)> {
        let edges = self.edges();
        let missing = edges.iter().flat_map(|(id, edge)| {
            let ports = edge.listeners.iter().filter(|(_, listener)| listener.is_none());
            ports.map(|(port, _)| (id.clone(), *port))
        });
        missing.collect()
    }

    /// Tries again to listen where it failed before.
    pub(super) fn listen_again(&self) {
        self.edges().values_mut().for_each(|edge| edge.listen(&self.gateway));
    }

    fn edges(&self) -> MutexGuard<'_, HashMap<String, TcpListeners>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TcpListeners {
    /// Whether it listens on a port.
    fn has(&self, port: u16) -> bool {
        self.listeners.get(&port).is_some_and(Option::is_some)
    }

    /// Listens where it does not yet.
    fn listen(&mut self, gateway: &Gateway) {
        for (port, listener) in self.listeners.iter_mut().filter(|(_, listener)| listener.is_none())
        {
            let opened = gateway.listen_for_bytes(*port, self.virtual_host.clone());
            *listener = or_debug!(opened, "a TCP edge does not listen");
        }
    }
}

fn route(
    edge: TcpEdge,
    modules: &mut ModuleCompiler,
    backends: &mut Backends,
    metrics: Option<Arc<EdgeMetrics>>,
) -> Route {
    let backend = backends.of_module(edge.backend.clone());
    let build = |builder: &mut ModuleBuilder<'_>| tcp_modules!(build_modules, [edge, builder]);
    let modules = modules.build(&edge.id, Scope::TcpEdge, build);
    let edge_id = edge.id.into();
    Route { id: "".into(), edge_id, modules, host_header: None, backend, metrics }
}

/// The ports of an edge; connections of bytes name no host.
fn ports(hostports: &[String]) -> BTreeSet<u16> {
    hostports.iter().filter_map(|text| host_port(text).ok()).map(|(_, port)| port).collect()
}
