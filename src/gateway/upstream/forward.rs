//! Forwarding one request to one target.

use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::on_informational;
use hyper::upgrade::OnUpgrade;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::gateway::Io;
use crate::gateway::http::body::{Body, Outgoing, Word};
use crate::gateway::http::error_response::{self, Fault};
use crate::gateway::http::head;
use crate::gateway::http::upgrade;
use crate::gateway::routing::target::{Reuse, Speaks, Target, Through, Undialable, Visitor};
use crate::gateway::upstream::connection::Wire;
use crate::gateway::upstream::http1::{self, Failed, Named};
use crate::gateway::upstream::http2;
use crate::gateway::upstream::pool::{Idle, Pool};

/// How long opening a connection may take.
const DIAL: Duration = Duration::from_secs(10);
/// How long a connection may have been idle without a copy being made of what it is sent.
const FRESH: Duration = Duration::from_millis(50);

/// A target with its idle connections.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub target: Arc<dyn Target>,
    pub pool: Arc<Pool>,
}

impl Upstream {
    /// What a connection for this visitor names.
    pub(crate) fn named(&self, visitor: &Visitor, through: &Through) -> Option<Named> {
        let named = || Named { address: visitor.peer.ip(), through: through.clone() };
        (self.target.reuse() == Reuse::SameAddress).then(named)
    }

    /// Opens a connection; idle ones make room for it where that is needed.
    pub(crate) async fn dial(
        &self,
        visitor: &Visitor,
        through: &Through,
    ) -> Result<Io, Undialable> {
        if self.target.is_full() {
            self.pool.clear();
        }
        self.target.dial(visitor, through).await
    }
}

/// A request on its way.
pub(crate) struct Exchange {
    pub request: Request<Outgoing>,
    /// The visitor's side of another protocol, when the request asks for one.
    pub upgrade: Option<OnUpgrade>,
}

/// What became of a request.
pub(crate) enum Outcome {
    /// The upstream has answered.
    Answered(Response<Body>),
    /// The target could not be dialed; nothing was sent, and another may be tried.
    Undialed(Box<Exchange>, Undialable),
    /// An agent was reached, but not what it forwards to; it may have said so in an answer.
    Unreached(Option<Response<Body>>),
    /// It failed in a way that forbids another try.
    Failed(Fault),
}

/// Sends a request to a target and gives its answer.
pub(crate) async fn forward(
    upstream: &Upstream,
    visitor: &Visitor,
    through: &Through,
    mut exchange: Exchange,
    runtime: &upgrade::Tasks,
) -> Outcome {
    // With HTTP/2 the upstream is not heard before it answers.
    let asks_first = upstream.target.speaks() == Speaks::Http1;
    if asks_first && head::expects_continue(exchange.request.headers()) {
        exchange.request = hold(exchange.request);
    }
    if upstream.target.reuse() != Reuse::Nobody {
        let named = upstream.named(visitor, through);
        while let Some(link) = upstream.pool.links.take(named.as_ref()) {
            let again = again(&link, &exchange.request);
            match send(link, upstream, exchange, runtime).await {
                Sent::Unsent(back) => exchange = back,
                // The upstream closed an idle connection when the request was on its way.
                Sent::Silent(on_upgrade) if let Some(request) = again => {
                    exchange = Exchange { request, upgrade: on_upgrade };
                    break;
                }
                Sent::Silent(_) => return Outcome::Failed(error_response::BROKEN),
                Sent::Done(outcome) => return outcome,
            }
        }
    }
    let dialed = match dial(upstream, visitor, through).await {
        // What waits for other visitors takes up room.
        Err(Undialable::Busy) if upstream.pool.clear() => dial(upstream, visitor, through).await,
        dialed => dialed,
    };
    let link = match dialed {
        Ok(link) => link,
        Err(reason) => return Outcome::Undialed(Box::new(exchange), reason),
    };
    match send(link, upstream, exchange, runtime).await {
        Sent::Done(outcome) => outcome,
        Sent::Unsent(back) => {
            let reason = Undialable::Unreachable("the connection closed at once".to_owned());
            Outcome::Undialed(Box::new(back), reason)
        }
        Sent::Silent(_) if upstream.target.is_agent() => Outcome::Unreached(None),
        Sent::Silent(_) => Outcome::Failed(error_response::BROKEN),
    }
}

/// How one attempt on one connection ended.
enum Sent {
    Done(Outcome),
    Unsent(Exchange),
    /// The upstream closed without a byte, whatever it may have read.
    Silent(Option<OnUpgrade>),
}

async fn send(
    mut link: Wire,
    upstream: &Upstream,
    exchange: Exchange,
    runtime: &upgrade::Tasks,
) -> Sent {
    let Exchange { request, upgrade } = exchange;
    let failed = |fault| Sent::Done(Outcome::Failed(fault));
    let response = match timeout(runtime.think, link.exchange(request)).await {
        Err(_) => return failed(error_response::LATE),
        Ok(Err(Failed::Unsent(request))) => {
            return Sent::Unsent(Exchange { request: *request, upgrade });
        }
        Ok(Err(Failed::Silent)) => return Sent::Silent(upgrade),
        Ok(Err(Failed::Broken)) => return failed(error_response::BROKEN),
        Ok(Ok(response)) => response,
    };
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_11;
    let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let unreached = upstream.target.is_agent()
        && head.status == StatusCode::BAD_GATEWAY
        && head::says_unreachable(&head.headers);
    head::inbound(&mut head.headers, switches);
    if !switches {
        let response = Response::from_parts(head, relay(body, link, upstream));
        return Sent::Done(if unreached {
            Outcome::Unreached(Some(response))
        } else {
            Outcome::Answered(response)
        });
    }
    // Nobody asked for it.
    let (Some(visitor), Wire::Http1(link)) = (upgrade, link) else {
        return failed(error_response::BROKEN);
    };
    let protocol = head.headers.get(UPGRADE);
    let is_websocket = protocol.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"));
    runtime.join(visitor, link, is_websocket);
    Sent::Done(Outcome::Answered(Response::from_parts(head, Body::empty())))
}

fn relay(body: Incoming, link: Wire, upstream: &Upstream) -> Body {
    let pool = (upstream.target.reuse() != Reuse::Nobody).then(|| upstream.pool.clone());
    match link {
        Wire::Http1(link) => Body::relay(http1::Relay::new(body, link, pool)),
        Wire::Http2(link) => Body::stream(http2::Relay::new(body, link, pool)),
    }
}

async fn dial(
    upstream: &Upstream,
    visitor: &Visitor,
    through: &Through,
) -> Result<Wire, Undialable> {
    let unreachable =
        |problem: &dyn std::fmt::Display| Undialable::Unreachable(problem.to_string());
    let dialed = within(upstream.dial(visitor, through)).await;
    let io = dialed.map_err(|late| unreachable(&late))??;
    let (speaks, named) = (upstream.target.speaks(), upstream.named(visitor, through));
    Wire::new(io, speaks, named).await.map_err(|problem| unreachable(&problem))
}

/// Gives up what takes longer than opening a connection may.
pub(crate) async fn within<F: Future>(dialing: F) -> Result<F::Output, Elapsed> {
    timeout(DIAL, dialing).await
}

impl Exchange {
    /// A copy of a request that may be sent twice.
    pub(crate) fn spare(&self) -> Option<Self> {
        let request = copy(&self.request)?;
        Some(Self { request, upgrade: self.upgrade.clone() })
    }
}

/// A copy of a request that may be sent twice, where the connection may have closed meanwhile.
fn again(link: &Wire, request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    if link.idle().is_none_or(|idle| idle < FRESH) { None } else { copy(request) }
}

/// A copy of a request that changes nothing and has no body.
fn copy(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    if !request.method().is_safe() || !matches!(request.body(), Outgoing::Empty) {
        return None;
    }
    let mut copy = Request::new(Outgoing::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Keeps the body back until the upstream asks for it.
fn hold(request: Request<Outgoing>) -> Request<Outgoing> {
    let word = Arc::new(Word::default());
    let mut request = request.map(|body| body.held(word.clone()));
    on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            word.given();
        }
    });
    request
}
