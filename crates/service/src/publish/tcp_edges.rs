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
    pub(super) fn refresh_edge(
        &self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
        id: &str,
    ) -> store::StoreResult<()> {
        let Some(edge) = view.find_document::<TcpEdge>(id)? else {
            self.remove(id);
            modules.forget_owner(id);
            return Ok(());
        };
        let ports = parse_ports(edge.hostports.as_deref().unwrap_or_default());
        let virtual_host = VirtualHost::from_route(build_route(
            edge,
            modules,
            backends,
            self.gateway.edge_metrics(id),
        ));
        self.publish_ports(id, ports, virtual_host);
        Ok(())
    }

    /// Serves what is at ports, in place of those that it had.
    pub(super) fn publish_ports(&self, id: &str, ports: BTreeSet<u16>, virtual_host: VirtualHost) {
        let mut edges = self.lock_edges();
        let known = edges.entry(id.to_owned()).or_default();
        known.virtual_host.store(Arc::new(virtual_host));
        known.listeners.retain(|port, _| ports.contains(port));
        for port in ports {
            known.listeners.entry(port).or_default();
        }
        known.open_listeners(&self.gateway);
    }

    /// Takes back what is gone.
    pub(super) fn remove(&self, id: &str) {
        self.lock_edges().remove(id);
    }

    /// The identifiers of all edges.
    pub(super) fn ids(&self) -> Vec<String> {
        self.lock_edges().keys().cloned().collect()
    }

    /// The first of an edge's ports that it cannot have, because somebody else listens there.
    pub(super) fn taken_port(&self, edge: &str, hostports: &[String]) -> Option<u16> {
        let edges = self.lock_edges();
        let own = edges.get(edge);
        parse_ports(hostports).into_iter().find(|port| {
            !own.is_some_and(|own| own.is_listening_on(*port)) && !self.gateway.can_listen(*port)
        })
    }

    /// The ports that edges should have and that somebody else has, each with its edge.
    pub(super) fn missing_ports(&self) -> Vec<(String, u16)> {
        let edges = self.lock_edges();
        let missing = edges.iter().flat_map(|(id, edge)| {
            let ports = edge.listeners.iter().filter(|(_, listener)| listener.is_none());
            ports.map(|(port, _)| (id.clone(), *port))
        });
        missing.collect()
    }

    /// Tries again to listen where it failed before.
    pub(super) fn retry_listeners(&self) {
        self.lock_edges().values_mut().for_each(|edge| edge.open_listeners(&self.gateway));
    }

    fn lock_edges(&self) -> MutexGuard<'_, HashMap<String, TcpListeners>> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TcpListeners {
    /// Whether it listens on a port.
    fn is_listening_on(&self, port: u16) -> bool {
        self.listeners.get(&port).is_some_and(Option::is_some)
    }

    /// Listens where it does not yet.
    fn open_listeners(&mut self, gateway: &Gateway) {
        for (port, listener) in self.listeners.iter_mut().filter(|(_, listener)| listener.is_none())
        {
            let opened = gateway.listen_for_bytes(*port, self.virtual_host.clone());
            *listener = or_debug!(opened, "a TCP edge does not listen");
        }
    }
}

fn build_route(
    edge: TcpEdge,
    modules: &mut ModuleCompiler,
    backends: &mut Backends,
    metrics: Option<Arc<EdgeMetrics>>,
) -> Route {
    let backend = backends.for_module(edge.backend.clone());
    let build = |builder: &mut ModuleBuilder<'_>| tcp_modules!(build_modules, [edge, builder]);
    let modules = modules.compile_for(&edge.id, Scope::TcpEdge, build);
    let edge_id = edge.id.into();
    Route { id: "".into(), edge_id, modules, host_header: None, backend, metrics }
}

/// The ports of an edge; connections of bytes name no host.
fn parse_ports(hostports: &[String]) -> BTreeSet<u16> {
    hostports.iter().filter_map(|text| host_port(text).ok()).map(|(_, port)| port).collect()
}
