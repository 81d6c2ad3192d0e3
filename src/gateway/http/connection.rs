//! Requests of one visitor, from their arrival to their answers.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::gateway::Inner;
use crate::gateway::events::Trace;
use crate::gateway::http::body::{Body, Outgoing};
use crate::gateway::http::connection_timer::{Answering, Pulse};
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::http::forwarded;
use crate::gateway::http::head::{self, Origin};
use crate::gateway::http::request_context::{Described, Way};
use crate::gateway::http::upgrade;
use crate::gateway::listener::shutdown::Listener;
use crate::gateway::modules::traffic_policy::Watched;
use crate::gateway::routing::backend::Kind;
use crate::gateway::routing::internal::is_internal;
use crate::gateway::routing::target::{Reuse, Speaks, Target, Through, Visitor};
use crate::gateway::routing::virtual_host::{Route, Site, Turned};
use crate::gateway::slot::Slot;
use crate::gateway::tls::policy::Guard;
use crate::gateway::upstream::forward::Upstream;
use crate::policy::Phase;

/// How many routes are remembered that have let a connection in.
const ADMITTED: usize = 64;

/// What is served behind a listener.
#[derive(Clone)]
pub(crate) enum Entrance {
    /// One site has the listener to itself.
    Own(Arc<Slot<Site>>),
    /// The host decides; a site with a guard is for those who came by it.
    Shared(Option<Arc<Guard>>),
}

/// One visitor who speaks HTTP.
pub(crate) struct Reception {
    edges: Arc<Inner>,
    entrance: Entrance,
    client: Client,
    /// True for a proxy that says for whom it comes.
    is_proxy: bool,
    origin: Origin,
    pulse: Arc<Pulse>,
    runtime: upgrade::Tasks,
    /// The routes whose rules for connections have let this one in.
    admitted: Mutex<Vec<Arc<Route>>>,
}

/// Who sends a request: whoever is connected, or somebody for whom a trusted proxy is.
struct Client {
    visitor: Visitor,
    described: Described,
}

impl Reception {
    pub(crate) fn new(
        edges: Arc<Inner>,
        entrance: Entrance,
        visitor: Visitor,
        pulse: Arc<Pulse>,
        bell: Listener,
    ) -> Self {
        let peer = visitor.peer.ip().to_canonical().to_string();
        let origin = Origin {
            // The text of an address is fit for a header.
            peer: HeaderValue::try_from(peer).unwrap_or(HeaderValue::from_static("unknown")),
            proto: HeaderValue::from_static(visitor.proto),
        };
        let runtime = upgrade::Tasks {
            bell,
            pulse: pulse.clone(),
            think: edges.settings.patience.think,
            carried: edges.upgraded.subscribe(),
        };
        let is_proxy = edges.settings.trusted_proxies.contains(visitor.peer.ip());
        let client = Client { visitor, described: Described::new() };
        let admitted = Mutex::default();
        Self { edges, entrance, client, is_proxy, origin, pulse, runtime, admitted }
    }

    pub(crate) fn visitor(&self) -> &Visitor {
        &self.client.visitor
    }

    /// Whether the other side is a proxy that says for whom it comes.
    pub(crate) fn trusts_peer(&self) -> bool {
        self.is_proxy
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Marks the beginning of an answer.
    pub(crate) fn answering(&self) -> Answering {
        self.pulse.answering()
    }

    /// How long an upstream may think.
    pub(crate) fn think(&self) -> Duration {
        self.runtime.think
    }

    /// What stands before the number of a code.
    pub(crate) fn code_prefix(&self) -> &str {
        &self.edges.settings.code_prefix
    }

    /// Where a request is only carried to, with nothing done on the way; none in all other cases.
    pub(crate) fn short(&self, host: &str, path: &str) -> Option<(Upstream, Through)> {
        if self.edges.teller.is_heard() {
            return None;
        }
        let site = match &self.entrance {
            Entrance::Own(slot) => slot.get(),
            Entrance::Shared(passed) => {
                let (host, port) = head::split(host);
                match self.site(host, port, path, passed.as_ref()) {
                    Ok(Found::Site(site)) => site,
                    _ => return None,
                }
            }
        };
        let route = site.find_plain(path)?;
        if route.modules.is_some() || route.host_header.is_some() {
            return None;
        }
        match &route.backend.get().kind {
            Kind::Upstream(upstream) if goes_short(upstream.target.as_ref()) => {
                Some((upstream.clone(), route.through()))
            }
            _ => None,
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Closed> {
        let answering = self.pulse.answering();
        let mut trace = self.edges.teller.trace();
        trace.request(&request);
        let somebody = self.behind_proxy(request.headers());
        let client = somebody.as_ref().unwrap_or(&self.client);
        let response = match self.forward(client, request, &mut trace).await {
            // Whatever was made of a part of the body, the request as a whole cannot be understood.
            Ok(_) | Err(Turned::Away(_)) if self.pulse.has_failed_body() => {
                error_response::BAD_REQUEST.into_response(&self.edges.settings.code_prefix)
            }
            Ok(response) => response,
            Err(Turned::Away(fault)) => fault.into_response(&self.edges.settings.code_prefix),
            Err(Turned::Closed) => {
                trace.tell::<()>(&self.edges.teller, &client.visitor, None);
                self.pulse.closed.store(true, Relaxed);
                return Err(Closed);
            }
        };
        trace.tell(&self.edges.teller, &client.visitor, Some(&response));
        Ok(response.map(|body| body.holding(answering)))
    }

    /// For whom a trusted proxy has sent a request; none where nobody else has.
    fn behind_proxy(&self, headers: &HeaderMap) -> Option<Client> {
        if !self.is_proxy {
            return None;
        }
        let own = &self.client.visitor;
        let peer = forwarded::client(headers, own.peer, &self.edges.settings.trusted_proxies);
        let somebody = || Client {
            visitor: Visitor { peer, ..own.clone() },
            described: self.client.described.again(),
        };
        (peer != own.peer).then(somebody)
    }

    async fn forward(
        &self,
        client: &Client,
        mut request: Request<Incoming>,
        trace: &mut Trace,
    ) -> Result<Response<Body>, Turned> {
        head::admit(&mut request)?;
        forwarded::remove(request.headers_mut(), self.is_proxy);
        let site = match &self.entrance {
            Entrance::Own(slot) => slot.get(),
            Entrance::Shared(passed) => {
                let (host, port) =
                    head::host(request.headers()).ok_or(error_response::NO_ENDPOINT)?;
                match self.site(host, port, request.uri(), passed.as_ref())? {
                    Found::Site(site) => site,
                    Found::Elsewhere(url) => return Ok(redirect(url)),
                }
            }
        };
        let found = site.find(request.uri().path(), self.edges.settings.ambiguous_paths)?;
        if let Some(path) = &found.path {
            head::set_path(&mut request, path)?;
        }
        let route = found.route;
        trace.note(|it| {
            it.edge_id = Some(route.edge_id.clone());
            it.route_id = Some(route.id.clone());
        });
        let mut way = Way {
            edges: &self.edges,
            visitor: &client.visitor,
            origin: &self.origin,
            runtime: &self.runtime,
            trace,
            connection: &client.described,
            through: route.through(),
            hops: 0,
        };
        self.admit(&mut way, route, &request).await?;
        route.serve(&mut way, request.map(|body| Outgoing::of(body, &self.pulse))).await
    }

    /// Runs the rules for connections, once for each connection and route; a connection of a proxy is
    /// one for each request.
    async fn admit(
        &self,
        way: &mut Way<'_>,
        route: &Arc<Route>,
        request: &Request<Incoming>,
    ) -> Result<(), Turned> {
        let rules = route.modules.as_ref().and_then(|modules| modules.policy.as_ref());
        let Some(rules) = rules.filter(|rules| rules.has(Phase::Connect)) else { return Ok(()) };
        if !self.is_proxy && self.admitted().iter().any(|known| Arc::ptr_eq(known, route)) {
            return Ok(());
        }
        let mut watched = Watched::new(way.connection(), way.endpoint(route, request.headers()));
        let entered = watched
            .enter(&self.edges, rules, way.trace, |_| Err::<(), _>(error_response::NO_ENDPOINT));
        entered.await.map_err(|()| Turned::Closed)?;
        if self.is_proxy {
            return Ok(());
        }
        let mut admitted = self.admitted();
        // A configuration that keeps changing leaves routes behind.
        if admitted.len() >= ADMITTED {
            admitted.clear();
        }
        admitted.push(route.clone());
        Ok(())
    }

    fn admitted(&self) -> MutexGuard<'_, Vec<Arc<Route>>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The site of the host that a request names.
    fn site(
        &self,
        host: String,
        port: Option<u16>,
        uri: impl Display,
        passed: Option<&Arc<Guard>>,
    ) -> Result<Found, Fault> {
        let visitor = self.visitor();
        let is_secure = visitor.tls.is_some();
        let usual = if is_secure { 443 } else { 80 };
        // The port that is listened on stands for the usual one.
        let port = port.filter(|port| *port != visitor.local.port()).unwrap_or(usual);
        if is_internal(&host) {
            return Err(error_response::NO_ENDPOINT);
        }
        if let Some(tls) = &visitor.tls
            && !tls.sni.is_empty()
            && tls.sni != host
        {
            return Err(error_response::MISDIRECTED);
        }
        let claim = self.edges.hosts.find(&host, port).ok_or(error_response::NO_ENDPOINT)?;
        if !is_secure
            && claim.port != port
            && self.edges.https.get().is_some()
            && let Some(url) = self.edges.url_of(&host, true)
        {
            return Ok(Found::Elsewhere(format!("{url}{uri}")));
        }
        let site = claim.site.get();
        // The handshake may have named nobody, another port's site, or what the site was before.
        let passes = |guard: &Arc<Guard>| match passed {
            Some(passed) => Arc::ptr_eq(passed, guard),
            None => !is_secure && !guard.asks,
        };
        if !site.guard.as_ref().is_none_or(passes) {
            return Err(error_response::MISDIRECTED);
        }
        Ok(Found::Site(site))
    }
}

/// Where a host is served.
enum Found {
    Site(Arc<Site>),
    /// At another address.
    Elsewhere(String),
}

/// A policy wants the connection to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed by a policy")]
pub(crate) struct Closed;

/// Whether a target takes requests as the bytes that they came in.
fn goes_short(target: &dyn Target) -> bool {
    target.is_agent() && target.reuse() != Reuse::Nobody && target.speaks() == Speaks::Http1
}

/// Sends a visitor elsewhere, with method and body.
fn redirect(url: String) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}
