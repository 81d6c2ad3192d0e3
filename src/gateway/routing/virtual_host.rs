//! What is served at a public address: routes, and what happens on each.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::upgrade::OnUpgrade;

use crate::gateway::Inner;
use crate::gateway::events::Trace;
use crate::gateway::http::body::{Body, Outgoing};
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::http::head;
use crate::gateway::http::request_context::Way;
use crate::gateway::modules::Modules;
use crate::gateway::modules::websocket_tcp;
use crate::gateway::routing::backend::{Backend, Candidate, Candidates, Kind};
use crate::gateway::routing::target::{BoxFuture, Through, Undialable, Visitor};
use crate::gateway::slot::Slot;
use crate::gateway::tls::policy::Guard;
use crate::gateway::upstream::forward::{Exchange, Outcome, forward};
use crate::policy::path::{self, AmbiguousPaths};

/// What is served at a public address.
#[derive(Default)]
pub(crate) struct Site {
    /// How TLS is spoken with visitors; none where it is as usual.
    pub guard: Option<Arc<Guard>>,
    exact: HashMap<String, Arc<Route>>,
    /// The longest first.
    prefixes: Vec<(String, Arc<Route>)>,
    /// True when something depends on the path of a request, so that it must mean one thing only.
    reads_paths: bool,
}

/// Which paths a route serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    /// This one.
    Exact(String),
    /// All that begin like this.
    Prefix(String),
}

/// Where a site sends a request.
pub(crate) struct Found<'s> {
    pub route: &'s Arc<Route>,
    /// The path that the request goes on with, where that is another one.
    pub path: Option<String>,
}

/// Why a request gets no answer of its backend.
pub(crate) enum Turned {
    /// The service answers it.
    Away(Fault),
    /// The connection is closed, with all other requests on it.
    Closed,
}

impl From<Fault> for Turned {
    fn from(fault: Fault) -> Self {
        Self::Away(fault)
    }
}

/// Where requests go, and what happens to them on the way.
pub(crate) struct Route {
    /// The identifier; empty for the endpoint of an agent.
    pub id: Arc<str>,
    /// The identifier of the edge; empty for the endpoint of an agent.
    pub edge_id: Arc<str>,
    /// What is done; none where nothing is.
    pub modules: Option<Modules>,
    /// The `Host` that the target shall see.
    pub host_header: Option<HeaderValue>,
    /// Where requests go.
    pub backend: Arc<Slot<Backend>>,
}

impl Site {
    /// A site that treats all requests alike.
    pub(crate) fn of(route: Route) -> Self {
        Self::new([(Match::Prefix(String::new()), Arc::new(route))])
    }

    pub(crate) fn new(routes: impl IntoIterator<Item = (Match, Arc<Route>)>) -> Self {
        let mut site = Self::default();
        for (wanted, route) in routes {
            site.reads_paths |= !wanted.is_everything() || route.reads_paths();
            match wanted {
                Match::Exact(path) => {
                    site.exact.insert(path::normalized(&path).into_owned(), route);
                }
                Match::Prefix(prefix) => {
                    site.prefixes.push((path::normalized(&prefix).into_owned(), route));
                }
            }
        }
        site.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        site
    }

    /// True for the endpoint of an agent that is gone for now.
    pub(crate) fn is_offline(&self) -> bool {
        let mut routes = self.prefixes.iter().map(|(_, route)| route);
        routes.any(|route| matches!(route.backend.get().kind, Kind::Offline))
    }

    /// The same site with a guard, or with none.
    pub(crate) fn guarded(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// True when visitors must show a certificate.
    pub(crate) fn asks(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.asks)
    }

    /// The route of a request, unless its path is ambiguous and something depends on it.
    pub(crate) fn find(&self, path: &str, ambiguous: AmbiguousPaths) -> Result<Found<'_>, Fault> {
        let found = |path: &str, other| {
            let route = self.route(path).ok_or(error_response::NO_ROUTE)?;
            Ok(Found { route, path: other })
        };
        if !self.reads_paths {
            return found(path, None);
        }
        let Some(ambiguity) = path::ambiguity(path) else {
            return found(&path::normalized(path), path::rooted(path));
        };
        match ambiguous {
            AmbiguousPaths::Reject => Err(error_response::ambiguous(ambiguity)),
            AmbiguousPaths::Normalize => {
                let resolved = path::resolved(path).map_err(error_response::ambiguous)?;
                found(&resolved, Some(resolved.clone()))
            }
        }
    }

    /// The same for a path that can be judged at a glance; none for others.
    pub(crate) fn find_plain(&self, path: &str) -> Option<&Arc<Route>> {
        if self.reads_paths && !path::is_plain(path) { None } else { self.route(path) }
    }

    /// The route of a normalized path: exactly its own, else the longest that it begins with.
    pub(crate) fn route(&self, path: &str) -> Option<&Arc<Route>> {
        if let Some(route) = self.exact.get(path) {
            return Some(route);
        }
        self.prefixes.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, route)| route)
    }
}

impl Match {
    /// Whether it is for all paths.
    fn is_everything(&self) -> bool {
        matches!(self, Self::Prefix(prefix) if matches!(prefix.as_str(), "" | "/"))
    }
}

impl Route {
    fn reads_paths(&self) -> bool {
        self.modules.as_ref().is_some_and(Modules::read_paths)
    }

    /// What those are told who are led on from here.
    pub(crate) fn through(&self) -> Through {
        Through { edge_id: self.edge_id.clone(), route_id: self.id.clone() }
    }

    /// Takes a request through the modules to the backend, and its answer back.
    pub(crate) async fn serve(
        &self,
        way: &mut Way<'_>,
        request: Request<Outgoing>,
    ) -> Result<Response<Body>, Turned> {
        match &self.modules {
            Some(modules) => modules.serve(self, way, request).await,
            None => Ok(self.send(way, request).await?),
        }
    }

    /// The same for a request that a policy has sent here.
    pub(crate) fn serve_within<'s>(
        &'s self,
        way: &'s mut Way<'_>,
        request: Request<Outgoing>,
    ) -> BoxFuture<'s, Result<Response<Body>, Turned>> {
        Box::pin(async move {
            way.hops += 1;
            let served = self.serve(way, request).await;
            way.hops -= 1;
            served
        })
    }

    /// Sends a request on, without what concerned only its visitor's connection.
    pub(crate) async fn send(
        &self,
        way: &mut Way<'_>,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Body>, Fault> {
        let upgrades = head::outbound(&mut request, way.origin)?;
        if let Some(host) = &self.host_header {
            request.headers_mut().insert(HOST, host.clone());
        }
        let upgrade = upgrades.then(|| hyper::upgrade::on(&mut request));
        if self.modules.as_ref().is_some_and(|modules| modules.converter) {
            return self.convert(way, request.headers(), upgrade).await;
        }
        self.forward(way, Exchange { request, upgrade }).await
    }

    /// Sends a request to the first target that takes it.
    async fn forward(
        &self,
        way: &mut Way<'_>,
        mut exchange: Exchange,
    ) -> Result<Response<Body>, Fault> {
        let backend = self.backend.get();
        if let Kind::Offline = backend.kind {
            return Err(error_response::NO_ENDPOINT);
        }
        drop(backend);
        let mut candidates = Candidates::of(way.edges, self.backend.clone());
        let mut last = None;
        while let Some(candidate) = candidates.next() {
            way.trace.note(|it| it.backend_id = candidates.from.clone());
            let upstream = match candidate {
                Candidate::Upstream(upstream) => upstream,
                Candidate::Fixed(backend) => match &backend.kind {
                    Kind::Fixed(fixed) => return Ok(fixed.response()),
                    _ => continue,
                },
            };
            let spare = if candidates.has_more() { exchange.spare() } else { None };
            match (
                forward(&upstream, way.visitor, &way.through, exchange, way.runtime).await,
                spare,
            ) {
                (Outcome::Undialed(back, reason), _) => {
                    exchange = *back;
                    last = Some(reason);
                }
                // The agent was there, but not what it forwards to.
                (Outcome::Unreached(_), Some(spare)) => {
                    exchange = spare;
                    last = Some(Undialable::Unreachable(String::new()));
                }
                (Outcome::Unreached(answer), None) => {
                    let mut answer = answer.ok_or(error_response::UNREACHABLE)?;
                    let prefix = &way.edges.settings.code_prefix;
                    error_response::name(
                        answer.headers_mut(),
                        error_response::UNREACHABLE.number,
                        prefix,
                    );
                    return Ok(answer);
                }
                (Outcome::Answered(response), _) => return Ok(response),
                (Outcome::Failed(fault), _) => return Err(fault),
            }
        }
        Err(candidates.exhausted(last.as_ref()))
    }

    /// Lets a visitor talk to the target in bytes, over a WebSocket.
    async fn convert(
        &self,
        way: &mut Way<'_>,
        headers: &HeaderMap,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response<Body>, Fault> {
        let response = websocket_tcp::agree(headers)?;
        let visitor = upgrade.ok_or(error_response::NO_WEBSOCKET)?;
        let target = self.dial(way.edges, way.visitor, &way.through, way.trace).await;
        way.runtime.convert(visitor, target.ok_or(error_response::UNREACHABLE)?);
        Ok(response)
    }

    /// Opens a connection for bytes; none where nobody takes it.
    pub(crate) async fn dial(
        &self,
        edges: &Inner,
        visitor: &Visitor,
        through: &Through,
        trace: &mut Trace,
    ) -> Option<crate::gateway::Io> {
        let mut candidates = Candidates::of(edges, self.backend.clone());
        while let Some(candidate) = candidates.next() {
            trace.note(|it| it.backend_id = candidates.from.clone());
            // An answer in HTTP is nothing for a visitor who speaks something else.
            let Candidate::Upstream(upstream) = candidate else { return None };
            let dialing = upstream.dial(visitor, through);
            if let Ok(Ok(io)) = crate::gateway::upstream::forward::within(dialing).await {
                return Some(io);
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_path_wins_then_the_longest_prefix() {
        let site = Site::new(
            [
                Match::Prefix("/".into()),
                Match::Prefix("/api/v1".into()),
                Match::Prefix("/api".into()),
                Match::Exact("/api/v1/".into()),
            ]
            .map(|wanted| {
                let host = match &wanted {
                    Match::Exact(path) => format!("={path}"),
                    Match::Prefix(path) => path.clone(),
                };
                let host_header = Some(HeaderValue::try_from(host).unwrap());
                let backend = Arc::new(Slot::new(Backend::nothing()));
                let route = Route {
                    id: "".into(),
                    edge_id: "".into(),
                    modules: None,
                    host_header,
                    backend,
                };
                (wanted, Arc::new(route))
            }),
        );
        let found = |path: &str| site.route(path).unwrap().host_header.clone().unwrap();

        assert_eq!(found("/api/v1/"), "=/api/v1/");
        assert_eq!(found("/api/v1/x"), "/api/v1");
        assert_eq!(found("/api/v10"), "/api/v1");
        assert_eq!(found("/apis"), "/api");
        assert_eq!(found("/API"), "/");
        assert!(Site::default().route("/").is_none());
    }

    /// A site with a route for everything and perhaps another one.
    fn site(other: Option<Match>) -> Site {
        let route = || {
            let (id, edge_id) = (Arc::from(""), Arc::from(""));
            let backend = Arc::new(Slot::new(Backend::nothing()));
            Arc::new(Route { id, edge_id, modules: None, host_header: None, backend })
        };
        let all = [Some(Match::Prefix("/".into())), other];
        Site::new(all.into_iter().flatten().map(|wanted| (wanted, route())))
    }

    #[test]
    fn ambiguous_paths_matter_where_a_route_depends_on_them() {
        let (plain, other) = (site(None), site(Some(Match::Prefix("/a".into()))));
        let reject = AmbiguousPaths::Reject;

        assert!(plain.find("/x/../a", reject).is_ok_and(|found| found.path.is_none()));
        assert!(plain.find_plain("/x/../%zz").is_some());
        assert_eq!(other.find("/x/../a", reject).err().map(|fault| fault.status), Some(400));
        assert!(other.find("/x//y", reject).is_ok_and(|found| found.path.is_none()));
        let rooted = other.find("//x", reject).ok().and_then(|found| found.path);
        assert_eq!(rooted.as_deref(), Some("/x"));
        assert!(other.find_plain("/x").is_some());
        for path in ["//x", "/%61", "/./x", "/x\\y"] {
            assert!(other.find_plain(path).is_none(), "{path}");
        }
        let resolved = other.find("/x/../a%2fb", AmbiguousPaths::Normalize).ok();
        assert_eq!(resolved.and_then(|found| found.path).as_deref(), Some("/a/b"));
    }

    #[test]
    fn a_match_is_brought_into_the_form_of_paths() {
        let site = site(Some(Match::Exact("//%61/%c3%a4".into())));
        let found =
            |path: &str| site.find(path, AmbiguousPaths::Reject).ok().unwrap().route.clone();

        assert!(Arc::ptr_eq(&found("/a/ä"), &found("/%61/%C3%a4")));
        assert!(!Arc::ptr_eq(&found("/a/ä"), &found("/")));
    }
}
