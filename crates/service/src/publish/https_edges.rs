//! HTTPS edges with their routes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ginnel_api::remote::edges::https::HttpsEdge;
use ginnel_api::remote::edges::modules::route_modules;
use ginnel_api::remote::edges::routes::HttpsEdgeRoute;
use ginnel_gateway::Gateway;
use ginnel_gateway::metrics::EdgeMetrics;
use ginnel_gateway::modules::edge_module::{EdgeModule, ModuleBuilder};
use ginnel_gateway::routing::hosts::HostChanges;
use ginnel_gateway::routing::route::Route;
use ginnel_gateway::routing::virtual_host::{PathMatch, VirtualHost};
use ginnel_gateway::tls::policy::TlsPolicy;
use ginnel_policy::Scope;
use ginnel_store::{self as store, View};

use crate::publish::backends::Backends;
use crate::publish::modules::{ModuleCompiler, build_modules, build_stored};
use crate::publish::names::{PublishedNames, names_of};
use crate::publish::tls_policies::TlsPolicyPlan;
use crate::references::routes_of;

/// The routes of an edge, and the paths that they serve.
type Routes = Vec<(PathMatch, Arc<Route>)>;

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
    names: PublishedNames,
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
    ) -> store::StoreResult<Option<String>> {
        let Some(route) = view.find_document::<HttpsEdgeRoute>(route_id)? else {
            modules.forget_owner(route_id);
            return Ok(self.edges_of_routes.remove(route_id));
        };
        if let Some(edge) = &route.edge_id {
            self.edges_of_routes.insert(route.id, edge.clone());
        }
        Ok(route.edge_id)
    }

    /// Publishes all edges, and takes back those that are gone; each document is read once.
    pub(super) fn publish_all(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
    ) -> store::StoreResult<()> {
        let mut gone_routes: HashSet<String> = self.edges_of_routes.keys().cloned().collect();
        let mut gone_edges: HashSet<String> = self.edges.keys().cloned().collect();
        let mut routes: HashMap<String, Routes> = HashMap::new();
        view.for_each_document(|route: HttpsEdgeRoute| {
            gone_routes.remove(&route.id);
            if let Some(edge_id) = route.edge_id.clone() {
                let made = self.build_route(route, &edge_id, modules, backends);
                routes.entry(edge_id).or_default().push(made);
            }
            Ok(())
        })?;
        let gateway = self.gateway.clone();
        let mut names = gateway.change_names();
        view.for_each_document(|edge: HttpsEdge| {
            gone_edges.remove(&edge.id);
            let routes = routes.remove(&edge.id).unwrap_or_default();
            self.publish_edge(view, &edge, routes)?;
            self.take_names(&edge, &mut names);
            Ok(())
        })?;
        gone_edges.iter().for_each(|id| self.remove_edge(id, &mut names));
        for route in &gone_routes {
            modules.forget_owner(route);
            self.edges_of_routes.remove(route);
        }
        Ok(())
    }

    /// Publishes an edge, which may be gone.
    pub(super) fn refresh_edge(
        &mut self,
        view: &View<'_>,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
        id: &str,
    ) -> store::StoreResult<()> {
        let Some(edge) = view.find_document::<HttpsEdge>(id)? else {
            let gateway = self.gateway.clone();
            self.remove_edge(id, &mut gateway.change_names());
            return Ok(());
        };
        let routes = routes_of(view, id)?.into_iter();
        let routes = routes.map(|route| self.build_route(route, id, modules, backends)).collect();
        self.publish_edge(view, &edge, routes)?;
        let gateway = self.gateway.clone();
        self.take_names(&edge, &mut gateway.change_names());
        Ok(())
    }

    /// Takes an edge back that is gone.
    fn remove_edge(&mut self, id: &str, names: &mut HostChanges<'_>) {
        self.incomplete.remove(id);
        if let Some(gone) = self.edges.remove(id) {
            gone.names.release_all(names);
        }
    }

    /// A route of an edge, and the paths that it serves.
    fn build_route(
        &mut self,
        route: HttpsEdgeRoute,
        edge_id: &str,
        modules: &mut ModuleCompiler,
        backends: &mut Backends,
    ) -> (PathMatch, Arc<Route>) {
        self.edges_of_routes.insert(route.id.clone(), edge_id.to_owned());
        let path = route.r#match.clone().unwrap_or_default();
        let matched = match route.match_type.as_deref() {
            Some("exact_path") => PathMatch::Exact(path),
            _ => PathMatch::Prefix(path),
        };
        let metrics = self.gateway.edge_metrics(edge_id);
        (matched, Arc::new(compile_route(route, modules, backends, metrics)))
    }

    /// Publishes an edge with its routes, the newest first.
    fn publish_edge(
        &mut self,
        view: &View<'_>,
        edge: &HttpsEdge,
        routes: Routes,
    ) -> store::StoreResult<()> {
        let known = self.edges.entry(edge.id.clone()).or_default();
        let virtual_host = match known.tls_policy(&self.gateway, view, edge)? {
            Ok(tls_policy) => VirtualHost::new(routes).with_tls_policy(tls_policy),
            // Stored certificates were checked; were they refused all the same, nobody is let in.
            Err(err) => {
                tracing::error!(edge = edge.id, %err, "an edge's certificates are unusable");
                VirtualHost::default()
            }
        };
        known.names.virtual_host.store(Arc::new(virtual_host));
        Ok(())
    }

    /// Leads the names of an edge to it.
    fn take_names(&mut self, edge: &HttpsEdge, changes: &mut HostChanges<'_>) {
        let known = self.edges.entry(edge.id.clone()).or_default();
        if known.names.replace_with(changes, names_of(edge.hostports.as_deref())) {
            self.incomplete.remove(&edge.id);
        } else {
            self.incomplete.insert(edge.id.clone());
        }
    }

    /// Tries again to get the names that others had.
    pub(super) fn retry_names(&mut self) {
        let Self { gateway, edges, incomplete, .. } = self;
        if !incomplete.is_empty() {
            let mut changes = gateway.change_names();
            let lacks =
                |id: &String| edges.get(id).is_some_and(|it| !it.names.claim_all(&mut changes));
            incomplete.retain(lacks);
        }
    }
}

impl PublishedEdge {
    /// The TLS policy of an edge; the inner error is about its certificates.
    fn tls_policy(
        &mut self,
        gateway: &Gateway,
        view: &View<'_>,
        edge: &HttpsEdge,
    ) -> store::StoreResult<Result<Option<Arc<TlsPolicy>>, String>> {
        let versions = edge.tls_termination.clone().filter(EdgeModule::is_enabled);
        let min_version = versions.and_then(|it| it.min_version);
        let plan = TlsPolicyPlan::new(edge.mutual_tls.clone(), min_version);
        if plan != self.tls_policy.0 {
            match plan.tls_policy(gateway, view)? {
                Ok(tls_policy) => self.tls_policy = (plan, tls_policy),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        Ok(Ok(self.tls_policy.1.clone()))
    }
}

fn compile_route(
    route: HttpsEdgeRoute,
    modules: &mut ModuleCompiler,
    backends: &mut Backends,
    metrics: Option<Arc<EdgeMetrics>>,
) -> Route {
    let backend = backends.for_module(route.backend.clone());
    let build = |builder: &mut ModuleBuilder<'_>| route_modules!(build_modules, [route, builder]);
    let modules = modules.compile_for(&route.id, Scope::HttpsRoute, build);
    let edge_id = route.edge_id.unwrap_or_default().into();
    Route { id: route.id.into(), edge_id, modules, host_header: None, backend, metrics }
}
