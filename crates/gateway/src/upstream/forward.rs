//! Forwarding one request to one target.

use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::timeout;

use ginnel_http1::{MediaType, ResponseGrammar, has_token};

use crate::Io;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::forwarded_head;
use crate::message::node_notice::NodeNotice;
use crate::message::request_body::{ContinueSignal, RequestBody};
use crate::message::response_body::ResponseBody;
use crate::message::rule_notes;
use crate::message::upgrade::{self, VisitorUpgrade};
use crate::message::visitor::{RouteRef, Visitor};
use crate::upstream::connection::UpstreamConnection;
use crate::upstream::http1::{self, ConnectionIdentity, ExchangeError};
use crate::upstream::http2;
use crate::upstream::pool::UpstreamPool;
use crate::upstream::target::{ConnectionReuse, DialError, Target, UpstreamProtocol};

/// A target with its idle connections.
#[derive(Clone)]
pub struct Upstream {
    pub target: Arc<dyn Target>,
    pub pool: Arc<UpstreamPool>,
}

impl Upstream {
    /// What a connection for this visitor names.
    pub fn connection_identity(
        &self,
        visitor: &Visitor,
        route_ref: &RouteRef,
    ) -> Option<ConnectionIdentity> {
        let (address, route_ref) = (visitor.peer.ip(), route_ref.clone());
        let visitor = match self.target.reuse() {
            ConnectionReuse::Nobody | ConnectionReuse::Everybody => return None,
            ConnectionReuse::SameAddress => None,
            ConnectionReuse::SameVisitor => Some(Box::new(visitor.clone())),
        };
        Some(ConnectionIdentity { address, route_ref, visitor })
    }

    /// How strictly responses are read: agents and nodes are ginnel's own.
    pub fn response_grammar(&self) -> ResponseGrammar {
        match self.target.is_agent() || self.target.is_node() {
            true => ResponseGrammar::Strict,
            false => ResponseGrammar::Tolerant,
        }
    }

    /// Opens a connection, which may take so long once there is room for it.
    pub async fn dial_target(
        &self,
        visitor: &Visitor,
        route_ref: &RouteRef,
        dial_timeout: Duration,
    ) -> Result<Io, DialError> {
        let limit = dial_timeout.saturating_add(self.target.queue_timeout());
        let dialing = timeout(limit, self.target.dial(visitor, route_ref));
        let dialed = self.await_response(true, dialing).await;
        dialed.map_err(|late| DialError::Unreachable(late.to_string()))?
    }

    /// Waits for a response. On a new connection to a backend, idle connections are given up if it does not come soon:
    /// the backend may serve one connection at a time. Agents do the same for their local services.
    pub async fn await_response<T>(&self, is_new: bool, waiting: impl Future<Output = T>) -> T {
        match is_new && !self.target.is_agent() && !self.target.is_node() {
            true => Box::pin(self.pool.await_response(waiting)).await,
            false => waiting.await,
        }
    }
}

/// A request on its way.
pub struct OutboundRequest {
    pub request: Request<RequestBody>,
    /// The visitor's side of another protocol, when the request asks for one.
    pub upgrade: Option<VisitorUpgrade>,
}

/// What became of a request.
pub enum ForwardOutcome {
    /// The upstream has answered.
    Answered(Response<ResponseBody>),
    /// The target could not be dialed; nothing was sent, and another may be tried.
    DialFailed(Box<OutboundRequest>, DialError),
    /// An agent was reached, but not what it forwards to; it may have said so in an answer.
    Unreachable(Option<Response<ResponseBody>>),
    /// The connection ended before any of a response: a request that changes nothing may go to another.
    Lost(ErrorResponse),
    /// It failed in a way that forbids another try.
    Failed(ErrorResponse),
}

/// Sends a request to a target and gives its answer.
pub async fn send_upstream(
    upstream: &Upstream,
    visitor: &Visitor,
    route_ref: &RouteRef,
    mut exchange: OutboundRequest,
    runtime: &upgrade::UpgradeContext,
) -> ForwardOutcome {
    let noted = rule_notes::add_notes(&mut exchange.request, upstream.target.rules_header());
    let mut outcome = attempt_exchange(upstream, visitor, route_ref, exchange, runtime).await;
    if let (Some(name), ForwardOutcome::DialFailed(exchange, _)) = (noted, &mut outcome) {
        // The next target does not know the header.
        exchange.request.headers_mut().remove(name);
    }
    outcome
}

async fn attempt_exchange(
    upstream: &Upstream,
    visitor: &Visitor,
    route_ref: &RouteRef,
    mut exchange: OutboundRequest,
    runtime: &upgrade::UpgradeContext,
) -> ForwardOutcome {
    // With HTTP/2 the upstream is not heard before it answers.
    let asks_first = upstream.target.protocol() == UpstreamProtocol::Http1;
    if asks_first && forwarded_head::expects_continue(exchange.request.headers()) {
        exchange.request = hold_body(exchange.request);
    }
    if upstream.target.reuse() != ConnectionReuse::Nobody {
        let identity = upstream.connection_identity(visitor, route_ref);
        let protocol = upstream.target.protocol();
        while let Some(connection) =
            UpstreamConnection::take_idle(&upstream.pool, protocol, identity.as_ref())
        {
            let again = try_clone_request(&exchange.request);
            match send_on_connection(connection, upstream, exchange, runtime).await {
                SendOutcome::Unsent(back) => exchange = back,
                // The upstream closed an idle connection when the request was on its way.
                SendOutcome::Silent(on_upgrade) if let Some(request) = again => {
                    exchange = OutboundRequest { request, upgrade: on_upgrade };
                    break;
                }
                SendOutcome::Silent(_) => return ForwardOutcome::Lost(error_response::BROKEN),
                SendOutcome::Done(outcome) => return outcome,
            }
        }
    }
    // An agent closes without a byte where its session ends, too: it may have another.
    let mut spare = if upstream.target.is_agent() { exchange.try_clone() } else { None };
    loop {
        let connection =
            match open_connection(upstream, visitor, route_ref, runtime.dial_timeout).await {
                Ok(connection) => connection,
                Err(reason) => return ForwardOutcome::DialFailed(Box::new(exchange), reason),
            };
        match send_on_connection(connection, upstream, exchange, runtime).await {
            SendOutcome::Done(outcome) => return outcome,
            SendOutcome::Unsent(back) => {
                let reason = DialError::Unreachable("the connection closed at once".to_owned());
                return ForwardOutcome::DialFailed(Box::new(back), reason);
            }
            SendOutcome::Silent(_) => match spare.take() {
                Some(again) => exchange = again,
                None if upstream.target.is_agent() => return ForwardOutcome::Unreachable(None),
                None => return ForwardOutcome::Lost(error_response::BROKEN),
            },
        }
    }
}

/// How one attempt on one connection ended.
enum SendOutcome {
    Done(ForwardOutcome),
    Unsent(OutboundRequest),
    /// The upstream closed without a byte, whatever it may have read.
    Silent(Option<VisitorUpgrade>),
}

async fn send_on_connection(
    mut connection: UpstreamConnection,
    upstream: &Upstream,
    exchange: OutboundRequest,
    runtime: &upgrade::UpgradeContext,
) -> SendOutcome {
    let OutboundRequest { request, upgrade } = exchange;
    let failed = |error| SendOutcome::Done(ForwardOutcome::Failed(error));
    let is_new = !connection.is_used();
    let sending = connection.send_request(request, upgrade.is_some(), &runtime.activity);
    let sending = upstream.await_response(is_new, sending);
    let response = match timeout(runtime.response_limit(), sending).await {
        Err(_) => return failed(error_response::LATE),
        Ok(Err(ExchangeError::Unsent(request))) => {
            return SendOutcome::Unsent(OutboundRequest { request: *request, upgrade });
        }
        Ok(Err(ExchangeError::Silent)) => return SendOutcome::Silent(upgrade),
        Ok(Err(ExchangeError::Broken)) => return failed(error_response::BROKEN),
        Ok(Ok(response)) => response,
    };
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_11;
    let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let unreached = upstream.target.is_agent()
        && head.status == StatusCode::BAD_GATEWAY
        && forwarded_head::is_unreachable_response(&head.headers);
    if upstream.target.is_node()
        && let Some(notice) = NodeNotice::from_headers(&head.headers)
    {
        head.extensions.insert(notice);
    }
    let is_endless = MediaType::from_headers(&head.headers).is_endless();
    forwarded_head::prepare_response(&mut head.headers, switches, upstream.target.is_node());
    if !switches {
        let body = relay_response(body, connection, upstream, is_endless);
        let response = Response::from_parts(head, body);
        return SendOutcome::Done(if unreached {
            ForwardOutcome::Unreachable(Some(response))
        } else {
            ForwardOutcome::Answered(response)
        });
    }
    // HTTP/2 has no such response.
    let (Some(visitor), UpstreamConnection::Http1(connection)) = (upgrade, connection) else {
        return failed(error_response::BROKEN);
    };
    let is_websocket = has_token(&head.headers, UPGRADE, "websocket");
    runtime.join_connections(visitor, connection, is_websocket);
    SendOutcome::Done(ForwardOutcome::Answered(Response::from_parts(head, ResponseBody::empty())))
}

fn relay_response(
    body: Option<Incoming>,
    connection: UpstreamConnection,
    upstream: &Upstream,
    is_endless: bool,
) -> ResponseBody {
    let may_wait = upstream.target.reuse() != ConnectionReuse::Nobody && upstream.target.may_idle();
    let pool = may_wait.then(|| upstream.pool.clone());
    match (connection, body) {
        (UpstreamConnection::Http1(connection), _) => {
            let mut body = http1::Http1Body::new(connection, pool);
            match body.take_whole() {
                Some(whole) => ResponseBody::from_bytes(whole),
                None => {
                    let has_stall_limit = !is_endless && !body.is_until_close();
                    ResponseBody::of_upstream(body, has_stall_limit)
                }
            }
        }
        (UpstreamConnection::Http2(connection), Some(body)) => {
            let body = http2::Http2Body::new(body, connection, pool);
            ResponseBody::of_upstream(body, !is_endless)
        }
        (UpstreamConnection::Http2(_), None) => ResponseBody::empty(),
    }
}

async fn open_connection(
    upstream: &Upstream,
    visitor: &Visitor,
    route_ref: &RouteRef,
    limit: Duration,
) -> Result<UpstreamConnection, DialError> {
    let io = upstream.dial_target(visitor, route_ref, limit).await?;
    let (protocol, identity) =
        (upstream.target.protocol(), upstream.connection_identity(visitor, route_ref));
    let grammar = upstream.response_grammar();
    let connection = UpstreamConnection::new(io, protocol, grammar, identity).await;
    connection.map_err(|problem| DialError::Unreachable(problem.to_string()))
}

impl OutboundRequest {
    /// A copy of a request that may be sent twice.
    pub fn try_clone(&self) -> Option<Self> {
        let request = try_clone_request(&self.request)?;
        Some(Self { request, upgrade: self.upgrade.clone() })
    }
}

/// Whether a request may be sent twice: it changes nothing and has no body.
pub fn is_repeatable(request: &Request<RequestBody>) -> bool {
    request.method().is_safe() && matches!(request.body(), RequestBody::Empty)
}

/// A copy of a request that may be sent twice.
pub fn try_clone_request(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !is_repeatable(request) {
        return None;
    }
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Keeps the body back until the upstream asks for it.
fn hold_body(request: Request<RequestBody>) -> Request<RequestBody> {
    let word = Arc::new(ContinueSignal::default());
    let mut request = request.map(|body| body.hold_for_continue(word.clone()));
    request.extensions_mut().insert(word);
    request
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use http::Method;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::BoxFuture;
    use crate::upstream::pool::UpstreamPools;
    use ginnel_net::Shutdown;

    fn visitor(peer: &str, local: &str) -> Visitor {
        let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
        Visitor { peer, local, proto: "http", tls: None, passthrough: false }
    }

    struct Reused(ConnectionReuse);

    impl Target for Reused {
        fn key(&self) -> &str {
            "target"
        }

        fn reuse(&self) -> ConnectionReuse {
            self.0
        }

        fn dial<'a>(
            &'a self,
            _: &'a Visitor,
            _: &'a RouteRef,
        ) -> BoxFuture<'a, Result<Io, DialError>> {
            Box::pin(std::future::ready(Err(DialError::Offline)))
        }
    }

    /// An agent whose sessions end as soon as they have taken a request, but for the last one.
    struct LosesSessions {
        lost: usize,
        dials: AtomicUsize,
    }

    impl Target for LosesSessions {
        fn key(&self) -> &str {
            "agent"
        }

        fn reuse(&self) -> ConnectionReuse {
            ConnectionReuse::Nobody
        }

        fn is_agent(&self) -> bool {
            true
        }

        fn dial<'a>(
            &'a self,
            _: &'a Visitor,
            _: &'a RouteRef,
        ) -> BoxFuture<'a, Result<Io, DialError>> {
            let is_lost = self.dials.fetch_add(1, Relaxed) < self.lost;
            let (near, mut far) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                assert_ne!(far.read(&mut head).await.unwrap(), 0);
                if !is_lost {
                    far.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                }
            });
            Box::pin(std::future::ready(Ok(Box::new(near) as Io)))
        }
    }

    const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

    /// A server whose connections send this answer so many times, and close on the next request.
    struct AnswersSome {
        answer: &'static str,
        times: usize,
        dials: AtomicUsize,
    }

    impl Target for AnswersSome {
        fn key(&self) -> &str {
            "server"
        }

        fn reuse(&self) -> ConnectionReuse {
            ConnectionReuse::Everybody
        }

        fn dial<'a>(
            &'a self,
            _: &'a Visitor,
            _: &'a RouteRef,
        ) -> BoxFuture<'a, Result<Io, DialError>> {
            self.dials.fetch_add(1, Relaxed);
            let (near, mut far) = tokio::io::duplex(4096);
            let (answer, times) = (self.answer, self.times);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                for _ in 0..times {
                    if far.read(&mut head).await.unwrap() == 0 {
                        return;
                    }
                    far.write_all(answer.as_bytes()).await.unwrap();
                }
                assert!(far.read(&mut head).await.is_ok());
            });
            Box::pin(std::future::ready(Ok(Box::new(near) as Io)))
        }
    }

    async fn forwarded(upstream: &Upstream, method: Method) -> ForwardOutcome {
        let mut request = Request::new(RequestBody::Empty);
        *request.method_mut() = method;
        let exchange = OutboundRequest { request, upgrade: None };
        let runtime = upgrade::UpgradeContext {
            shutdown: Shutdown::default().signal(),
            activity: Arc::default(),
            response_timeout: Some(Duration::from_secs(10)),
            dial_timeout: Duration::from_secs(10),
        };
        let visitor = visitor("192.0.2.1:1000", "192.0.2.9:80");
        send_upstream(upstream, &visitor, &RouteRef::none(), exchange, &runtime).await
    }

    #[tokio::test]
    async fn a_kept_connection_that_closes_unanswered_fails_nothing_that_may_be_repeated() {
        let target = Arc::new(AnswersSome { answer: EMPTY, times: 1, dials: AtomicUsize::new(0) });
        let upstream = Upstream {
            target: target.clone(),
            pool: UpstreamPools::new(1).pool_for_target(target.as_ref()),
        };

        for dials in [1, 2, 3] {
            read_body_of(forwarded(&upstream, Method::GET).await).await;
            assert_eq!(target.dials.load(Relaxed), dials);
        }
        let lost = forwarded(&upstream, Method::POST).await;
        assert!(matches!(lost, ForwardOutcome::Lost(_)));
        assert_eq!(target.dials.load(Relaxed), 3);
    }

    /// The whole body of an answer.
    async fn read_body_of(outcome: ForwardOutcome) -> Vec<u8> {
        let response = match outcome {
            ForwardOutcome::Answered(response) => Some(response),
            _ => None,
        };
        response.unwrap().into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_connection_whose_answer_was_repaired_carries_no_other() {
        for (fields, body, dials) in [
            ("Content-Length: 4", "page", 1),
            ("Content-Length : 4", "page", 2),
            ("X-Frame-Options : DENY\r\nContent-Length: 4", "page", 2),
            ("Transfer-Encoding: chunked", "4\r\npage\r\n0\r\n\r\n", 1),
            ("Transfer-Encoding: chunked", "4 \r\npage\r\n0\r\n\r\n", 2),
            ("Transfer-Encoding: chunked", "4\r\npage\r\n0\r\nX : y\r\n\r\n", 2),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").leak();
            let target = Arc::new(AnswersSome { answer, times: 2, dials: AtomicUsize::new(0) });
            let upstream = Upstream {
                target: target.clone(),
                pool: UpstreamPools::new(1).pool_for_target(target.as_ref()),
            };

            for _ in 0..2 {
                let read = read_body_of(forwarded(&upstream, Method::GET).await).await;
                assert_eq!(read, b"page", "{answer:?}");
            }

            assert_eq!(target.dials.load(Relaxed), dials, "{answer:?}");
        }
    }

    /// What becomes of a request at such an agent, and how often it was sent.
    async fn sent(method: Method, lost: usize) -> (&'static str, usize) {
        let target = Arc::new(LosesSessions { lost, dials: AtomicUsize::new(0) });
        let upstream = Upstream {
            target: target.clone(),
            pool: UpstreamPools::new(1).pool_for_target(target.as_ref()),
        };
        let outcome = match forwarded(&upstream, method).await {
            ForwardOutcome::Answered(_) => "answered",
            ForwardOutcome::Unreachable(None) => "unreachable",
            _ => "something else",
        };
        (outcome, target.dials.load(Relaxed))
    }

    #[tokio::test]
    async fn what_may_be_repeated_goes_to_another_session_of_the_agent() {
        assert_eq!(sent(Method::GET, 1).await, ("answered", 2));
        assert_eq!(sent(Method::GET, 2).await, ("unreachable", 2));
        assert_eq!(sent(Method::POST, 1).await, ("unreachable", 1));
    }

    #[test]
    fn a_connection_that_names_its_visitor_carries_nobody_else() {
        let one = visitor("192.0.2.1:1000", "192.0.2.9:80");
        let others =
            [visitor("192.0.2.1:1001", "192.0.2.9:80"), visitor("192.0.2.1:1000", "192.0.2.8:80")];
        let is_shared = |reuse| {
            let target = Arc::new(Reused(reuse));
            let pool = UpstreamPools::new(1).pool_for_target(target.as_ref());
            let upstream = Upstream { target, pool };
            let identity = |visitor| upstream.connection_identity(visitor, &RouteRef::none());
            others.each_ref().map(|other| identity(&one) == identity(other))
        };

        assert_eq!(is_shared(ConnectionReuse::SameVisitor), [false, false]);
        assert_eq!(is_shared(ConnectionReuse::SameAddress), [true, true]);
    }
}
