//! Cloud endpoints: names and ports that traffic policies serve.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

use ginnel_api::remote::edges::modules::TrafficPolicyDocument;
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::ModuleBuilder;
use ginnel_gateway::routing::backend::Backend;
use ginnel_gateway::routing::hosts::HostChanges;
use ginnel_gateway::routing::route::Route;
use ginnel_gateway::routing::virtual_host::VirtualHost;
use ginnel_store::{self as store, View};

use crate::cloud_endpoint::{CloudAddress, CloudEndpoint, CloudScheme};
use crate::publish::modules::{ModuleCompiler, build_stored};
use crate::publish::tcp_edges::TcpEdges;

/// The endpoints, and which of them lack their names.
pub(super) struct CloudEndpoints {
    gateway: Gateway,
    ports: Arc<TcpEdges>,
    endpoints: HashMap<String, PublishedEndpoint>,
    /// Those whose names somebody else has.
    incomplete: HashSet<String>,
}

/// An endpoint, and the name that it has; none where it has a port of its own.
#[derive(Default)]
struct PublishedEndpoint {
    virtual_host: Arc<ArcSwap<VirtualHost>>,
    name: Option<(String, u16)>,
}

/// An endpoint that can be published.
struct CompiledEndpoint {
    id: String,
    address: CloudAddress,
    virtual_host: VirtualHost,
}

impl CloudEndpoints {
    pub(super) fn new(gateway: Gateway, ports: Arc<TcpEdges>) -> Self {
        Self { gateway, ports, endpoints: HashMap::new(), incomplete: HashSet::new() }
    }

    /// Publishes all endpoints, and takes back those that are gone.
    pub(super) fn publish_all(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
    ) -> store::StoreResult<()> {
        let mut gone: HashSet<String> = self.endpoints.keys().cloned().collect();
        let mut stored = Vec::new();
        view.for_each_document(|endpoint: CloudEndpoint| {
            gone.remove(&endpoint.id);
            stored.extend(compile_endpoint(endpoint, modules, &self.gateway));
            Ok(())
        })?;
        let gateway = self.gateway.clone();
        let mut names = gateway.change_names();
        gone.iter().for_each(|id| self.remove_endpoint(id, modules, &mut names));
        stored.into_iter().for_each(|endpoint| self.publish_endpoint(endpoint, &mut names));
        Ok(())
    }

    /// Publishes an endpoint, which may be gone.
    pub(super) fn refresh_endpoint(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        id: &str,
    ) -> store::StoreResult<()> {
        let gateway = self.gateway.clone();
        // Whoever makes something public waits for the names, so policies are compiled before.
        let stored = view.find_document::<CloudEndpoint>(id)?;
        match stored.and_then(|endpoint| compile_endpoint(endpoint, modules, &gateway)) {
            Some(endpoint) => self.publish_endpoint(endpoint, &mut gateway.change_names()),
            None => self.remove_endpoint(id, modules, &mut gateway.change_names()),
        }
        Ok(())
    }

    /// Tries again to get the names that others had.
    pub(super) fn retry_names(&mut self) {
        let Self { gateway, endpoints, incomplete, .. } = self;
        if !incomplete.is_empty() {
            let mut names = gateway.change_names();
            incomplete.retain(|id| endpoints.get(id).is_some_and(|it| !it.add_name(&mut names)));
        }
    }

    fn remove_endpoint(
        &mut self,
        id: &str,
        modules: &mut ModuleCompiler,
        names: &mut HostChanges<'_>,
    ) {
        modules.forget_owner(id);
        self.incomplete.remove(id);
        self.ports.remove(id);
        if let Some(mut gone) = self.endpoints.remove(id) {
            gone.replace_name(names, None);
            // Connections that are kept alive meet nobody from now on.
            gone.virtual_host.store(Arc::default());
        }
    }

    fn publish_endpoint(&mut self, endpoint: CompiledEndpoint, names: &mut HostChanges<'_>) {
        let CompiledEndpoint { id, address, virtual_host } = endpoint;
        let known = self.endpoints.entry(id.clone()).or_default();
        if address.scheme == CloudScheme::Tcp {
            known.replace_name(names, None);
            self.incomplete.remove(&id);
            self.ports.publish_ports(&id, BTreeSet::from([address.port]), virtual_host);
            return;
        }
        self.ports.remove(&id);
        known.virtual_host.store(Arc::new(virtual_host));
        match known.replace_name(names, Some((address.host, address.port))) {
            true => self.incomplete.remove(&id),
            false => self.incomplete.insert(id),
        };
    }
}

impl PublishedEndpoint {
    /// Takes a name in place of the one that it had; false when it is another's.
    fn replace_name(&mut self, names: &mut HostChanges<'_>, name: Option<(String, u16)>) -> bool {
        if let Some((old, port)) = self.name.take_if(|old| Some(&*old) != name.as_ref()) {
            names.remove_claim(&old, port, &self.virtual_host);
        }
        self.name = name;
        self.add_name(names)
    }

    fn add_name(&self, names: &mut HostChanges<'_>) -> bool {
        let Some((name, port)) = &self.name else { return true };
        names.add_claim(name, *port, &self.virtual_host, false)
    }
}

/// An endpoint with its policy compiled; none of an address that cannot be read, which is none that was checked.
fn compile_endpoint(
    endpoint: CloudEndpoint,
    modules: &mut ModuleCompiler,
    gateway: &Gateway,
) -> Option<CompiledEndpoint> {
    let address = CloudAddress::parse_url(&endpoint.url).ok()?;
    let policy =
        TrafficPolicyDocument { enabled: Some(true), value: Some(endpoint.traffic_policy) };
    let build = |builder: &mut ModuleBuilder<'_>| vec![build_stored(policy, builder)];
    let modules = modules.compile_for(&endpoint.id, address.scheme.policy_scope(), build);
    let metrics = gateway.edge_metrics(&endpoint.id);
    let backend = Arc::new(ArcSwap::from_pointee(Backend::nothing()));
    let (id, edge_id) = (endpoint.id.as_str().into(), "".into());
    let route = Route { id, edge_id, modules, host_header: None, backend, metrics };
    Some(CompiledEndpoint {
        id: endpoint.id,
        address,
        virtual_host: VirtualHost::from_route(route),
    })
}
