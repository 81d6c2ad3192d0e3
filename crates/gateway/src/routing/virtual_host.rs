//! What is served at a public address: routes, and what happens on each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::Request;

use ginnel_policy::actions::terminate_tls::TerminateTls;
use ginnel_policy::login::{LoginVisit, is_login_path};
use ginnel_policy::path::{self, Ambiguity, AmbiguousPaths, PathReadings, RequestPath};

use crate::message::error_response::{self, ErrorResponse};
use crate::message::forwarded_head::SelectedPath;
use crate::modules::module::Modules;
use crate::routing::backend::{BackendKind, random_below};
use crate::routing::route::Route;
use crate::tls::policy::TlsPolicy;
use crate::upstream::forward::Upstream;

/// The target of `OPTIONS *`, which is about the whole server. Only a route for all paths serves it.
const SERVER_TARGET: &str = "*";

/// What is served at a public address.
#[derive(Default)]
pub struct VirtualHost {
    /// How TLS is spoken with visitors; none where it is as usual, or is carried as bytes.
    pub tls_policy: Option<Arc<TlsPolicy>>,
    /// True when what visitors say over TLS, or their TLS itself, is bytes to the service: it serves no
    /// requests.
    pub carries_bytes: bool,
    exact: HashMap<String, Arc<Route>>,
    /// The longest first.
    prefixes: Vec<(String, Arc<Route>)>,
    /// True when something depends on the path of a request, so that it must mean one thing only.
    reads_paths: bool,
    /// Routes that share all paths: each request takes one at random.
    pool: Box<[Arc<Route>]>,
    /// Those whose visitors log in at paths that no route has to itself.
    login_routes: Vec<Arc<Route>>,
}

/// Which paths a route serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMatch {
    /// This one.
    Exact(String),
    /// All that begin like this.
    Prefix(String),
}

/// The route of a request.
pub struct RouteMatch<'s> {
    pub route: &'s Arc<Route>,
    /// The path that the request goes on with.
    pub path: SelectedPath,
}

impl VirtualHost {
    /// How TLS is spoken with the visitors of an agent's endpoint, where its policy says so.
    pub fn tls_termination(&self) -> Option<&TerminateTls> {
        let route = self.prefixes.first().map(|(_, route)| route)?;
        route.modules.as_ref()?.rules()?.tls_termination()
    }

    /// A virtual host that treats all requests alike.
    pub fn from_route(route: Route) -> Self {
        Self::new([(PathMatch::Prefix(String::new()), Arc::new(route))])
    }

    /// A virtual host that leads everything to another node.
    pub fn of_node(node: Upstream) -> Self {
        Self::from_route(Route::to_node(node))
    }

    /// A virtual host at which each request takes one of these routes at random.
    pub fn from_routes(routes: Vec<Arc<Route>>) -> Self {
        match <[_; 1]>::try_from(routes) {
            Ok([only]) => Self::new([(PathMatch::Prefix(String::new()), only)]),
            Err(routes) => {
                let reads_paths = routes.iter().any(|route| route.reads_paths());
                let has_logins = |route: &&Arc<Route>| route.has_logins();
                let login_routes = routes.iter().filter(has_logins).cloned().collect();
                Self { reads_paths, pool: routes.into(), login_routes, ..Self::default() }
            }
        }
    }

    pub fn new(routes: impl IntoIterator<Item = (PathMatch, Arc<Route>)>) -> Self {
        let mut virtual_host = Self::default();
        for (spec, route) in routes {
            virtual_host.reads_paths |= !spec.is_everything() || route.reads_paths();
            if route.has_logins() {
                virtual_host.login_routes.push(route.clone());
            }
            match spec {
                PathMatch::Exact(path) => {
                    virtual_host
                        .exact
                        .insert(RequestPath::new(&path).into_normal().into_owned(), route);
                }
                PathMatch::Prefix(prefix) => {
                    virtual_host
                        .prefixes
                        .push((RequestPath::new(&prefix).into_normal().into_owned(), route));
                }
            }
        }
        virtual_host.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        virtual_host
    }

    /// True for the endpoint of an agent that is gone for now.
    pub fn is_offline(&self) -> bool {
        self.offline_since().is_some()
    }

    /// For the endpoint of an agent that is gone for now: since when, if it was lost and not stopped.
    pub fn offline_since(&self) -> Option<Option<Instant>> {
        self.prefixes.iter().find_map(|(_, route)| match route.backend.load_full().kind {
            BackendKind::Offline(lost) => Some(lost),
            _ => None,
        })
    }

    /// The same virtual host with a TLS policy, or with none.
    pub fn with_tls_policy(self, tls_policy: Option<Arc<TlsPolicy>>) -> Self {
        Self { tls_policy, ..self }
    }

    /// The same virtual host for bytes, whose TLS ends here by this policy, or not at all.
    pub fn for_bytes(self, tls_policy: Option<Arc<TlsPolicy>>) -> Self {
        Self { tls_policy, carries_bytes: true, ..self }
    }

    /// Whether TLS goes through as it is, so that certificates are not the service's matter.
    pub fn passes_tls(&self) -> bool {
        self.carries_bytes && self.tls_policy.is_none()
    }

    /// True when visitors must show a certificate.
    pub fn requires_certificate(&self) -> bool {
        self.tls_policy.as_ref().is_some_and(|tls_policy| tls_policy.requires_certificate())
    }

    /// The route of a request, unless its path is ambiguous and something depends on it.
    pub fn route_request(
        &self,
        path: &str,
        ambiguous: AmbiguousPaths,
    ) -> Result<RouteMatch<'_>, ErrorResponse> {
        if !self.reads_paths || path::is_plain(path) {
            return self.match_route(path, None);
        }
        let path = RequestPath::new(path);
        match ambiguous {
            AmbiguousPaths::Reject => self.find_unambiguous(&path),
            AmbiguousPaths::Normalize if path.ambiguity().is_some() => {
                let resolved = path.resolve_path().map_err(error_response::ambiguous_path)?;
                self.match_route(&resolved, Some(resolved.clone()))
            }
            AmbiguousPaths::Normalize => self.find_unambiguous(&path),
            AmbiguousPaths::Auto => {
                let found = self.find_alike(&path)?;
                if found.route.reads_paths() { self.find_unambiguous(&path) } else { Ok(found) }
            }
            AmbiguousPaths::Preserve => {
                let mut found = self.find_alike(&path)?;
                if found.route.reads_paths() {
                    let sent = found.path.path.as_deref().map_or(path, RequestPath::new);
                    found.path.readings = sent.other_readings();
                }
                Ok(found)
            }
        }
    }

    /// The route of a path that is not ambiguous.
    fn find_unambiguous(&self, path: &RequestPath<'_>) -> Result<RouteMatch<'_>, ErrorResponse> {
        match path.ambiguity() {
            Some(ambiguity) => Err(error_response::ambiguous_path(ambiguity)),
            None => self.match_route(path.normal(), path.rooted()),
        }
    }

    /// The route of a path that leads to the same one in all of its readings; the request goes on as it came.
    fn find_alike(&self, path: &RequestPath<'_>) -> Result<RouteMatch<'_>, ErrorResponse> {
        let own = self.own_route(path.normal()).map(Arc::as_ptr);
        let is_alike = |path: &RequestPath<'_>| {
            path.readings().all(|it| self.own_route(&it).map(Arc::as_ptr) == own)
        };
        let ambiguity = path.ambiguity();
        if ambiguity != Some(Ambiguity::Nul) && is_alike(path) {
            return self.match_route(path.normal(), None);
        }
        // Programs that join two parts of a URL often write a second slash at the beginning.
        let is_unambiguous =
            |path: &String| ambiguity.is_none() && is_alike(&RequestPath::new(path));
        let rooted = path.rooted().filter(is_unambiguous);
        if rooted.is_some() {
            return self.match_route(path.normal(), rooted);
        }
        Err(error_response::ambiguous_path(ambiguity.unwrap_or(Ambiguity::Readings)))
    }

    fn match_route(
        &self,
        path: &str,
        other: Option<String>,
    ) -> Result<RouteMatch<'_>, ErrorResponse> {
        let route = self.route_for_path(path).ok_or(error_response::NO_ROUTE)?;
        let path = SelectedPath { path: other, readings: PathReadings::default() };
        Ok(RouteMatch { route, path })
    }

    /// Whether visitors log in at an issuer on this machine.
    pub fn has_local_issuers(&self) -> bool {
        let modules = self.login_routes.iter().filter_map(|route| route.modules.as_ref());
        modules.into_iter().any(Modules::have_local_issuers)
    }

    /// The addresses of issuers that visitors log in at, where documents write them in place of names.
    pub fn issuer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let modules = self.login_routes.iter().filter_map(|route| route.modules.as_ref());
        modules.flat_map(Modules::issuer_addresses)
    }

    /// The route that a step of a login is for, whatever paths it serves.
    pub fn login_route<B>(&self, request: &Request<B>, scheme: &str) -> Option<&Arc<Route>> {
        if self.login_routes.is_empty() || !is_login_path(request.uri().path()) {
            return None;
        }
        let target = (request.method(), request.uri());
        let visit =
            LoginVisit::from_request(target, request.headers(), request.extensions(), scheme)?;
        let takes = |modules: &Modules| modules.take_login(&visit);
        self.login_routes.iter().find(|route| route.modules.as_ref().is_some_and(takes))
    }

    /// The same for a path that can be judged at a glance; none for others.
    pub fn find_plain(&self, path: &str) -> Option<&Arc<Route>> {
        if self.reads_paths && !path::is_plain(path) { None } else { self.route_for_path(path) }
    }

    /// The route of a normalized path: exactly its own, else the longest that it begins with.
    pub fn route_for_path(&self, path: &str) -> Option<&Arc<Route>> {
        self.own_route(path).or_else(|| self.pool.get(random_below(self.pool.len())))
    }

    /// The route of a normalized path that does not share all paths with others.
    fn own_route(&self, path: &str) -> Option<&Arc<Route>> {
        let is_for_path = |prefix: &str| match path {
            SERVER_TARGET => is_everything(prefix),
            _ => path.starts_with(prefix),
        };
        let by_prefix = || self.prefixes.iter().find(|(prefix, _)| is_for_path(prefix));
        self.exact.get(path).or_else(|| by_prefix().map(|(_, route)| route))
    }
}

impl PathMatch {
    /// Whether it is for all paths.
    fn is_everything(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if is_everything(prefix))
    }
}

/// Returns true if all paths begin with a prefix.
fn is_everything(prefix: &str) -> bool {
    matches!(prefix, "" | "/")
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use http::HeaderValue;

    use super::*;
    use crate::routing::backend::Backend;

    #[test]
    fn the_exact_path_wins_then_the_longest_prefix() {
        let virtual_host = VirtualHost::new(
            [
                PathMatch::Prefix("/".into()),
                PathMatch::Prefix("/api/v1".into()),
                PathMatch::Prefix("/api".into()),
                PathMatch::Exact("/api/v1/".into()),
            ]
            .map(|spec| {
                let host = match &spec {
                    PathMatch::Exact(path) => format!("={path}"),
                    PathMatch::Prefix(path) => path.clone(),
                };
                let host_header = Some(HeaderValue::try_from(host).unwrap());
                let backend = Arc::new(ArcSwap::from_pointee(Backend::nothing()));
                let route = Route {
                    id: "".into(),
                    edge_id: "".into(),
                    modules: None,
                    host_header,
                    backend,
                    metrics: None,
                };
                (spec, Arc::new(route))
            }),
        );
        let found =
            |path: &str| virtual_host.route_for_path(path).unwrap().host_header.clone().unwrap();

        assert_eq!(found("/api/v1/"), "=/api/v1/");
        assert_eq!(found("/api/v1/x"), "/api/v1");
        assert_eq!(found("/api/v10"), "/api/v1");
        assert_eq!(found("/apis"), "/api");
        assert_eq!(found("/API"), "/");
        assert_eq!(found("*"), "/");
        assert!(VirtualHost::default().route_for_path("/").is_none());
    }

    /// A virtual host with a route for everything and perhaps another one.
    fn virtual_host(other: Option<PathMatch>) -> VirtualHost {
        let all = [Some(PathMatch::Prefix("/".into())), other];
        VirtualHost::new(all.into_iter().flatten().map(|spec| (spec, empty_route())))
    }

    fn empty_route() -> Arc<Route> {
        let (id, edge_id) = (Arc::from(""), Arc::from(""));
        let backend = Arc::new(ArcSwap::from_pointee(Backend::nothing()));
        let (modules, host_header, metrics) = (None, None, None);
        Arc::new(Route { id, edge_id, modules, host_header, backend, metrics })
    }

    #[test]
    fn ambiguous_paths_matter_where_a_route_depends_on_them() {
        let (plain, other) =
            (virtual_host(None), virtual_host(Some(PathMatch::Prefix("/a".into()))));
        let reject = AmbiguousPaths::Reject;

        assert!(
            plain.route_request("/x/../a", reject).is_ok_and(|found| found.path.path.is_none())
        );
        assert!(plain.find_plain("/x/../%zz").is_some());
        assert_eq!(
            other.route_request("/x/../a", reject).err().map(|error| error.status),
            Some(400)
        );
        assert!(other.route_request("/x//y", reject).is_ok_and(|found| found.path.path.is_none()));
        let rooted = other.route_request("//x", reject).ok().and_then(|found| found.path.path);
        assert_eq!(rooted.as_deref(), Some("/x"));
        assert!(other.find_plain("/x").is_some());
        for path in ["//x", "/%61", "/./x", "/x\\y"] {
            assert!(other.find_plain(path).is_none(), "{path}");
        }
        let resolved = other.route_request("/x/../a%2fb", AmbiguousPaths::Normalize).ok();
        assert_eq!(resolved.and_then(|found| found.path.path).as_deref(), Some("/a/b"));
    }

    #[test]
    fn the_server_itself_has_a_route_only_if_all_paths_have_it() {
        let parts = [PathMatch::Prefix("/api".into()), PathMatch::Exact("/".into())];
        let virtual_host = VirtualHost::new(parts.map(|spec| (spec, empty_route())));

        for mode in [AmbiguousPaths::Reject, AmbiguousPaths::Auto, AmbiguousPaths::Preserve] {
            let refused = virtual_host.route_request("*", mode).err();
            assert_eq!(refused, Some(error_response::NO_ROUTE));
        }
    }

    #[test]
    fn a_match_is_brought_into_the_form_of_paths() {
        let virtual_host = virtual_host(Some(PathMatch::Exact("//%61/%c3%a4".into())));
        let found = |path: &str| {
            virtual_host.route_request(path, AmbiguousPaths::Reject).ok().unwrap().route.clone()
        };

        assert!(Arc::ptr_eq(&found("/a/ä"), &found("/%61/%C3%a4")));
        assert!(!Arc::ptr_eq(&found("/a/ä"), &found("/")));
    }
}
