//! Requests of one visitor, from their arrival to their answers.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::Inner;
use super::bell::Listener;
use super::body::{Body, Outgoing};
use super::event::Trace;
use super::fault::{self, Fault};
use super::head::{self, Origin};
use super::pulse::Pulse;
use super::site::{Site, Way};
use super::slot::Slot;
use super::target::Visitor;
use super::upgrade;

/// What is served behind a listener.
#[derive(Clone)]
pub(super) enum Entrance {
    /// One site has the listener to itself.
    Own(Arc<Slot<Site>>),
    /// The host decides.
    Shared,
}

/// One visitor who speaks HTTP.
pub(super) struct Reception {
    edges: Arc<Inner>,
    entrance: Entrance,
    visitor: Visitor,
    origin: Origin,
    pulse: Arc<Pulse>,
    runtime: upgrade::Tasks,
}

impl Reception {
    pub(super) fn new(
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
        let runtime = upgrade::Tasks { bell, pulse: pulse.clone() };
        Self { edges, entrance, visitor, origin, pulse, runtime }
    }

    /// Answers a request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let answering = self.pulse.answering();
        let mut trace = self.edges.teller.trace();
        trace.request(&request);
        let response = match self.forward(request, &mut trace).await {
            Ok(response) => response,
            Err(Turned::Away(fault)) => fault.into_response(&self.edges.settings.code_prefix),
            Err(Turned::To(url)) => redirect(url),
        };
        trace.tell(&self.edges.teller, &self.visitor, Some(&response));
        Ok(response.map(|body| body.holding(answering)))
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        trace: &mut Trace,
    ) -> Result<Response<Body>, Turned> {
        head::admit(&mut request)?;
        let site = match &self.entrance {
            Entrance::Own(slot) => slot.get(),
            Entrance::Shared => self.site(&request)?,
        };
        let route = site.route(request.uri().path()).ok_or(fault::NO_ROUTE)?;
        let upgrades = head::outbound(&mut request, &self.origin)?;
        let request = request.map(Outgoing::of);
        trace.note(|it| {
            it.edge_id = Some(route.edge_id.clone());
            it.route_id = Some(route.id.clone());
        });
        let mut way =
            Way { edges: &self.edges, visitor: &self.visitor, runtime: &self.runtime, trace };
        Ok(route.serve(&mut way, request, upgrades).await?)
    }

    /// The site of the host that a request names.
    fn site(&self, request: &Request<Incoming>) -> Result<Arc<Site>, Turned> {
        let (host, port) = head::host(request.headers()).ok_or(fault::NO_ENDPOINT)?;
        let is_secure = self.visitor.tls.is_some();
        let usual = if is_secure { 443 } else { 80 };
        if let Some(tls) = &self.visitor.tls
            && !tls.sni.is_empty()
            && tls.sni != host
        {
            return Err(fault::MISDIRECTED.into());
        }
        // The port that is listened on stands for the usual one.
        let port = port.filter(|port| *port != self.visitor.local.port()).unwrap_or(usual);
        let claim = self.edges.hosts.find(&host, port).ok_or(fault::NO_ENDPOINT)?;
        if !is_secure
            && claim.port != port
            && self.edges.https.get().is_some()
            && let Some(url) = self.edges.url_of(&host, true)
        {
            return Err(Turned::To(format!("{url}{}", request.uri())));
        }
        Ok(claim.site.get())
    }
}

/// Why a request is not served here.
enum Turned {
    Away(Fault),
    To(String),
}

impl From<Fault> for Turned {
    fn from(fault: Fault) -> Self {
        Self::Away(fault)
    }
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
