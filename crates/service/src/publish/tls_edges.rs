//! TLS edges.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ginnel_api::remote::edges::modules::tls_modules;
use ginnel_api::remote::edges::tls::TlsEdge;
use ginnel_gateway::Gateway;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleBuilder};
use ginnel_gateway::modules::tls_termination::ends_at_edge;
use ginnel_gateway::routing::route::Route;
use ginnel_gateway::routing::virtual_host::VirtualHost;
use ginnel_gateway::tls::policy::TlsPolicy;
use ginnel_policy::Scope;
use ginnel_store::{self as store, View};

use crate::publish::backends::Backends;
use crate::publish::modules::{ModuleCompiler, build_modules, build_stored};
use crate::publish::names::{PublishedNames, names_of};
use crate::publish::tls_policies::TlsPolicyPlan;

/// The edges, and which of them lack a name that somebody else has.
pub(super) struct TlsEdges {
    gateway: Gateway,
    edges: HashMap<String, PublishedTlsEdge>,
    incomplete: HashSet<String>,
}

/// An edge, and the names that it has.
#[derive(Default)]
struct PublishedTlsEdge {
    names: PublishedNames,
    /// How TLS ends, and what that was made of: as long as that stays, so do the sessions of visitors.
    ended: Option<(TlsPolicyPlan, Arc<TlsPolicy>)>,
}

impl TlsEdges {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, edges: HashMap::new(), incomplete: HashSet::new() }
    }

    /// The identifiers of all edges.
    pub(super) fn ids(&self) -> Vec<String> {
        self.edges.keys().cloned().collect()
    }

    /// Publishes an edge, which may be gone.
    pub(super) fn refresh_edge(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
        id: &str,
    ) -> store::StoreResult<()> {
        let Some(edge) = view.find_document::<TlsEdge>(id)? else {
            self.remove_edge(id);
            modules.forget_owner(id);
            return Ok(());
        };
        let names = names_of(edge.hostports.as_deref());
        let known = self.edges.entry(id.to_owned()).or_default();
        let tls_policy = known.tls_policy(&self.gateway, view, &edge)?;
        // Policies are compiled before: whoever makes something public waits for the names.
        let route = self.build_route(edge, modules, backends);
        let virtual_host = match tls_policy {
            Ok(tls_policy) => VirtualHost::from_route(route).for_bytes(tls_policy),
            // Stored certificates were checked; were they refused all the same, nobody is let in.
            Err(err) => {
                tracing::error!(edge = id, %err, "an edge's certificates are unusable");
                VirtualHost::default().for_bytes(None)
            }
        };
        self.publish_edge(id, virtual_host, names);
        Ok(())
    }

    fn publish_edge(&mut self, id: &str, virtual_host: VirtualHost, names: Vec<(String, u16)>) {
        let gateway = self.gateway.clone();
        // Before a visitor can find one: where there are none, nobody looks.
        gateway.set_tls_edges(self.edges.len());
        let mut changes = gateway.change_names();
        let Some(known) = self.edges.get_mut(id) else { return };
        known.names.virtual_host.store(Arc::new(virtual_host));
        // Whether the service has a certificate for them may be another matter now.
        changes.mark_changed();
        match known.names.replace_with(&mut changes, names) {
            true => self.incomplete.remove(id),
            false => self.incomplete.insert(id.to_owned()),
        };
    }

    /// Takes an edge back that is gone.
    fn remove_edge(&mut self, id: &str) {
        self.incomplete.remove(id);
        if let Some(gone) = self.edges.remove(id) {
            gone.names.release_all(&mut self.gateway.change_names());
            self.gateway.set_tls_edges(self.edges.len());
        }
    }

    /// Tries again to get the names that others had.
    pub(super) fn retry_names(&mut self) {
        let Self { gateway, edges, incomplete } = self;
        if !incomplete.is_empty() {
            let mut changes = gateway.change_names();
            let lacks =
                |id: &String| edges.get(id).is_some_and(|it| !it.names.claim_all(&mut changes));
            incomplete.retain(lacks);
        }
    }

    fn build_route(
        &self,
        edge: TlsEdge,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
    ) -> Route {
        let metrics = self.gateway.edge_metrics(&edge.id);
        let backend = backends.for_module(edge.backend.clone());
        let build = |builder: &mut ModuleBuilder<'_>| tls_modules!(build_modules, [edge, builder]);
        let modules = modules.compile_for(&edge.id, Scope::TcpEdge, build);
        let edge_id = edge.id.into();
        Route { id: "".into(), edge_id, modules, host_header: None, backend, metrics }
    }
}

impl PublishedTlsEdge {
    /// How TLS ends at an edge; none where it does not. The inner error is about its certificates.
    fn tls_policy(
        &mut self,
        gateway: &Gateway,
        view: &View<'_>,
        edge: &TlsEdge,
    ) -> store::StoreResult<Result<Option<Arc<TlsPolicy>>, String>> {
        let ending = edge.tls_termination.as_ref().filter(|it| ends_at_edge(it));
        let Some(ending) = ending else {
            self.ended = None;
            return Ok(Ok(None));
        };
        let plan = TlsPolicyPlan::new(edge.mutual_tls.clone(), ending.min_version.clone());
        if let Some((known, tls_policy)) = &self.ended
            && *known == plan
        {
            return Ok(Ok(Some(tls_policy.clone())));
        }
        let made = plan.tls_policy_of_bytes(gateway, view)?;
        self.ended = made.as_ref().ok().map(|tls_policy| (plan, tls_policy.clone()));
        Ok(made.map(Some))
    }
}
