//! Requests of one visitor, from their arrival to their answers.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use super::Inner;
use super::body::{Body, Outgoing};
use super::fault::{self, Fault};
use super::forward::Exchange;
use super::head::{self, Origin};
use super::pulse::Pulse;
use super::site::Site;
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
    ) -> Self {
        let peer = visitor.peer.ip().to_canonical().to_string();
        let origin = Origin {
            // The text of an address is fit for a header.
            peer: HeaderValue::try_from(peer).unwrap_or(HeaderValue::from_static("unknown")),
            proto: HeaderValue::from_static(visitor.proto),
        };
        let runtime = upgrade::Tasks { cut: edges.cut.subscribe(), pulse: pulse.clone() };
        Self { edges, entrance, visitor, origin, pulse, runtime }
    }

    /// Answers a request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let answering = self.pulse.answering();
        let response = match self.forward(request).await {
            Ok(response) => response,
            Err(fault) => fault.into_response(&self.edges.settings.code_prefix),
        };
        Ok(response.map(|body| body.holding(answering)))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Fault> {
        head::admit(&mut request)?;
        let site = self.site(&request)?;
        let route = site.route(request.uri().path()).ok_or(fault::NO_ROUTE)?;
        let upgrades = head::outbound(&mut request, &self.origin);
        if let Some(host) = &route.host_header {
            request.headers_mut().insert(HOST, host.clone());
        }
        let upgrade = upgrades.then(|| hyper::upgrade::on(&mut request));
        let exchange = Exchange { request: request.map(Outgoing::of), upgrade };
        route.backend.forward(&self.visitor, exchange, &self.runtime).await
    }

    fn site(&self, request: &Request<Incoming>) -> Result<Arc<Site>, Fault> {
        let slot = match &self.entrance {
            Entrance::Own(slot) => return Ok(slot.get()),
            Entrance::Shared => {
                let (host, _) = head::host(request.headers()).ok_or(fault::NO_ENDPOINT)?;
                self.edges.hosts.find(&host).ok_or(fault::NO_ENDPOINT)?
            }
        };
        Ok(slot.get())
    }
}
