//! HTTPS edges with their routes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::api::remote::edges::https::HttpsEdge;
use crate::api::remote::edges::modules::route_modules;
use crate::api::remote::edges::routes::HttpsEdgeRoute;
use crate::gateway::Gateway;
use crate::gateway::metrics::EdgeMetrics;
use crate::gateway::modules::edge_module::{EdgeModule, ModuleBuilder};
use crate::gateway::routing::virtual_host::{PathMatch, Route, VirtualHost};
use crate::gateway::tls::policy::TlsPolicy;
use crate::policy::Scope;
use crate::service::check::host_port;
use crate::service::publish::backends::Backends;
use crate::service::publish::modules::{ModuleCompiler, build_modules};
use crate::service::publish::tls_policies::TlsPolicyPlan;
use crate::service::references::routes_of;
use crate::service::store::{self, View};

/// The edges, and which routes belong to them.
pub(super) struct HttpsEdges {
    gateway: Gateway,
    edges: HashMap<String, PublishedEdge>,
    edges_of_routes: HashMap<String, String>,
    /// The edges that lack a name that somebody else has.
    incomplete: HashSet<String>,
}

/// An edge, and the names that it has.
#[derive(Default)]
struct PublishedEdge {
    virtual_host: Arc<ArcSwap<VirtualHost>>,
    names: Vec<(String, u16)>,
    /// The TLS policy, and what it was made of; as long as that stays, so do the visitors.
    tls_policy: (TlsPolicyPlan, Option<Arc<TlsPolicy>>),
}

impl HttpsEdges {
    pub(super) fn new(gateway: Gateway) -> Self {
        let (edges, edges_of_routes) = (HashMap::new(), HashMap::new());
        Self { gateway, edges, edges_of_routes, incomplete: HashSet::new() }
    }

    /// The edge of a route, which may be gone.
    pub(super) fn edge_of(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        route_id: &str,
    ) -> Result<Option<String>, store::StoreError> {
        let Some(route) = view.find::<HttpsEdgeRoute>(route_id)? else {
            modules.forget(route_id);
            return Ok(self.edges_of_routes.remove(route_id));
        };
        if let Some(edge) = &route.edge_id {
            self.edges_of_routes.insert(route.id, edge.clone());
        }
        Ok(route.edge_id)
    }

    /// Publishes an edge, which may be gone.
    pub(super) fn refresh(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
        id: &str,
    ) -> Result<(), store::StoreError> {
        let Some(edge) = view.find::<HttpsEdge>(id)? else {
            self.incomplete.remove(id);
            if let Some(mut gone) = self.edges.remove(id) {
                gone.take_names(&self.gateway, Vec::new());
                gone.virtual_host.store(Arc::new(VirtualHost::default()));
            }
            return Ok(());
        };
        let mut routes = Vec::new();
        for route in routes_of(view, id)? {
            self.edges_of_routes.insert(route.id.clone(), id.to_owned());
            let path = route.r#match.clone().unwrap_or_default();
            let matched = match route.match_type.as_deref() {
                Some("exact_path") => PathMatch::Exact(path),
                _ => PathMatch::Prefix(path),
            };
            let metrics = self.gateway.edge_metrics(id);
            routes.push((matched, Arc::new(published(route, modules, backends, metrics))));
        }
        let known = self.edges.entry(id.to_owned()).or_default();
        let virtual_host = match known.tls_policy(&self.gateway, view, &edge)? {
            Ok(tls_policy) => VirtualHost::new(routes).with_tls_policy(tls_policy),
            // Stored certificates were checked; were they refused all the same, nobody is let in.
            Err(err) => {
                tracing::error!(edge = id, %err, "an edge's certificates are unusable");
                VirtualHost::default()
            }
        };
        known.virtual_host.store(Arc::new(virtual_host));
        if known.take_names(&self.gateway, names(&edge)) {
            self.incomplete.remove(id);
        } else {
            self.incomplete.insert(id.to_owned());
        }
        Ok(())
    }

    /// Tries again to get the names that others had.
    pub(super) fn take_names_again(&mut self) {
        let Self { gateway, edges, incomplete, .. } = self;
        incomplete.retain(|id| edges.get(id).is_some_and(|edge| !edge.add_names(gateway)));
    }
}

impl PublishedEdge {
    /// The TLS policy of an edge; the inner error is about its certificates.
    fn tls_policy(
        &mut self,
        gateway: &Gateway,
        view: &View<'_>,
        edge: &HttpsEdge,
    ) -> Result<Result<Option<Arc<TlsPolicy>>, String>, store::StoreError> {
        let plan = TlsPolicyPlan::of(edge);
        if plan != self.tls_policy.0 {
            match plan.tls_policy(gateway, view)? {
                Ok(tls_policy) => self.tls_policy = (plan, tls_policy),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        Ok(Ok(self.tls_policy.1.clone()))
    }

    /// Takes these names in place of those it had; false when one of them is another's.
    fn take_names(&mut self, gateway: &Gateway, names: Vec<(String, u16)>) -> bool {
        for (name, port) in self.names.iter().filter(|name| !names.contains(name)) {
            gateway.remove_name(name, *port, &self.virtual_host);
        }
        self.names = names;
        self.add_names(gateway)
    }

    /// Takes the names that it should have; one that an agent's endpoint has stays there, and then
    /// this is false.
    fn add_names(&self, gateway: &Gateway) -> bool {
        let mut has_all = true;
        for (name, port) in &self.names {
            has_all &= gateway.add_name(name, *port, &self.virtual_host);
        }
        has_all
    }
}

fn published(
    route: HttpsEdgeRoute,
    modules: &mut ModuleCompiler,
    backends: &mut Backends,
    metrics: Option<Arc<EdgeMetrics>>,
) -> Route {
    let backend = backends.of_module(route.backend.clone());
    let build = |builder: &mut ModuleBuilder<'_>| route_modules!(build_modules, [route, builder]);
    let modules = modules.build(&route.id, Scope::HttpsRoute, build);
    let edge_id = route.edge_id.unwrap_or_default().into();
    Route { id: route.id.into(), edge_id, modules, host_header: None, backend, metrics }
}

fn names(edge: &HttpsEdge) -> Vec<(String, u16)> {
    let hostports = edge.hostports.iter().flatten().map(|text| text.to_ascii_lowercase());
    hostports
        .filter_map(|text| {
            let (star, rest) = match text.strip_prefix("*.") {
                Some(rest) => ("*.", rest),
                None => ("", text.as_str()),
            };
            let (host, port) = host_port(rest).ok()?;
            Some((format!("{star}{host}"), port))
        })
        .collect()
}
