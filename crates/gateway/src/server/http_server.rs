//! Speaking HTTP with visitors: HTTP/1.1 and, where TLS agrees on it, HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, Sleep, sleep, timeout};

use ginnel_base::logging::{ignore, or_debug};
use ginnel_net::tls::AcceptedSocket;
use ginnel_net::{AcceptedConnection, Permit, ShutdownPhase, ShutdownSignal};

use crate::message::connection_activity::{ActivityTimeouts, ConnectionActivity};
use crate::message::metered::MeteredSocket;
use crate::message::request_body::RequestBody;
use crate::message::response_body::ResponseBody;
use crate::message::visitor::Visitor;
use crate::message::visitor_stream::VisitorStream;
use crate::request_phase::RequestPhase;
use crate::routing::hosts::HostSelection;
use crate::server::accept::{self, TlsRoute};
use crate::server::connection::{ConnectionClosed, HttpConnection};
use crate::server::fast_path::Closing;
use crate::server::flood_guard::{FloodGuard, MAX_UNSEEN_RESETS};
use crate::server::gateway::GatewayState;
use crate::server::http1_server::{Http1Exit, Http1Server};
use crate::server::stream_executor::StreamExecutor;
use crate::server::tcp;
use crate::timeouts::TickLimits;
use crate::tls::challenges::ACME_TLS;

/// How long the end of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// By how much a head of HTTP/2 may be too large and still be read, so that the response says why it is
/// refused, in bytes.
const SPARE_HEAD_BYTES: usize = 16 << 10;
/// How much of a connection is buffered at most in either direction, in bytes.
const MAX_BUFFER_BYTES: usize = 128 << 10;
/// How much a visitor may send ahead with HTTP/2, for one request, in bytes.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// How often an HTTP/2 connection is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Serves a visitor who speaks HTTP without TLS.
pub async fn serve_plain(
    gateway: Arc<GatewayState>,
    host_selection: HostSelection,
    connection: AcceptedConnection,
    mut shutdown: ShutdownSignal,
) {
    let AcceptedConnection { stream, peer, local, permit } = connection;
    if !accept::await_first_byte(&gateway, &stream, &mut shutdown).await {
        return;
    }
    let visitor = Visitor { peer, local, proto: "http", tls: None, passthrough: false };
    http1(gateway, host_selection, (AcceptedSocket::Plain(stream), permit), visitor, shutdown)
        .await;
}

/// Serves a visitor who speaks HTTP over TLS.
pub async fn serve_tls(
    gateway: Arc<GatewayState>,
    host_selection: HostSelection,
    connection: AcceptedConnection,
    mut shutdown: ShutdownSignal,
    config: Arc<ServerConfig>,
) {
    let AcceptedConnection { stream, peer, local, permit } = connection;
    if !accept::await_first_byte(&gateway, &stream, &mut shutdown).await {
        return;
    }
    if let HostSelection::ByHost(_) = &host_selection {
        let looking = gateway.tls_route(&stream);
        let looked = shutdown.run_until(ShutdownPhase::Graceful, looking).await;
        match looked.flatten() {
            Some(TlsRoute::Node(node)) => {
                let visitor =
                    Visitor { peer, local, proto: "https", tls: None, passthrough: false };
                let (socket, _permit) = (AcceptedSocket::Plain(stream), permit);
                return gateway.carry_tls(node, socket, &visitor, shutdown).await;
            }
            Some(TlsRoute::Edge(edge, name)) => {
                let connection = AcceptedConnection { stream, peer, local, permit };
                return tcp::carry_by_name(gateway, (edge, name), connection, shutdown).await;
            }
            None => {}
        }
    }
    let accepted = accept::accept_tls(&gateway, host_selection, stream, config).await;
    let accepted = or_debug!(accepted, "a TLS handshake of a visitor failed");
    let Some((mut stream, host_selection)) = accepted else {
        return gateway.services.count_rejection(RequestPhase::Accept);
    };
    let tls = accept::tls_info(&stream);
    if tls.alpn == ACME_TLS {
        // The handshake was all that the authority wanted to see.
        let closed = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
        return ignore(closed, "an authority need not wait for the end");
    }
    let visitor =
        Visitor { peer, local, proto: "https", tls: Some(Arc::new(tls)), passthrough: false };
    let socket = AcceptedSocket::Tls(Box::new(stream));
    http(gateway, host_selection, (socket, permit), visitor, shutdown).await;
}

/// Serves a visitor by the version of HTTP that TLS has agreed on, 1.1 where it has not.
pub async fn http(
    gateway: Arc<GatewayState>,
    host_selection: HostSelection,
    (socket, permit): (AcceptedSocket, Permit),
    visitor: Visitor,
    shutdown: ShutdownSignal,
) {
    if visitor.tls.as_ref().is_some_and(|tls| tls.alpn == "h2") {
        // Nothing goes on after it, as protocols do that HTTP/1.1 is left for.
        let _permit = permit;
        http2(gateway, host_selection, socket, visitor, shutdown).await;
    } else {
        http1(gateway, host_selection, (socket, permit), visitor, shutdown).await;
    }
}

pub async fn http1(
    gateway: Arc<GatewayState>,
    host_selection: HostSelection,
    (socket, permit): (AcceptedSocket, Permit),
    visitor: Visitor,
    shutdown: ShutdownSignal,
) {
    let activity = Arc::new(ConnectionActivity::default());
    let bytes = gateway.bytes_of(visitor.proto);
    let limits = TickLimits::from_timeouts(&gateway.timeouts());
    let is_relayed = matches!(host_selection, HostSelection::Relayed);
    let http_connection =
        HttpConnection::new(gateway, host_selection, visitor, activity.clone(), shutdown.clone());
    let http_connection = Arc::new(http_connection);
    let socket = MeteredSocket::with_counts(socket, bytes, activity.carried.clone());
    let mut stream = VisitorStream::new(socket, activity.clone(), permit);
    if is_relayed {
        stream = stream.without_half_close();
    }
    let mut timer = ConnectionTimer::new(&activity, limits, shutdown);
    match serve_http1(&http_connection, &mut stream, &mut timer).await {
        Some(Http1Exit::Upgraded(upgrade)) => upgrade.send(stream),
        Some(Http1Exit::Aborted) => {}
        None | Some(Http1Exit::Finished) => {
            let closed = timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
            ignore(closed, "whether the visitor still listens does not matter");
        }
    }
}

/// Serves the requests of a connection; none when its visitor has used up its time, or at a shutdown.
async fn serve_http1(
    http_connection: &Arc<HttpConnection>,
    stream: &mut VisitorStream,
    timer: &mut ConnectionTimer<'_>,
) -> Option<Http1Exit> {
    let (closing, mut exit) = (Closing::default(), None);
    // Its first request may be there already.
    let is_draining = timer.shutdown.phase() >= ShutdownPhase::Draining;
    closing.after_next.store(is_draining, Relaxed);
    {
        let server = Http1Server::new(http_connection, stream, &closing);
        let mut serving = pin!(async { exit = Some(server.serve_requests().await) });
        let mut event = timer.watch_connection(serving.as_mut(), ShutdownPhase::Draining).await;
        if event == TimerEvent::Shutdown {
            closing.after_next.store(true, Relaxed);
            event = timer.watch_connection(serving.as_mut(), ShutdownPhase::Graceful).await;
        }
        if event == TimerEvent::Shutdown && timer.activity.is_answering() {
            closing.now.store(true, Relaxed);
            timer.watch_connection(serving, ShutdownPhase::Forced).await;
        }
    }
    exit
}

async fn http2(
    gateway: Arc<GatewayState>,
    host_selection: HostSelection,
    socket: AcceptedSocket,
    visitor: Visitor,
    shutdown: ShutdownSignal,
) {
    let (max_streams, head) = {
        let live = gateway.services.live.load();
        (live.http2_streams, live.head_limits())
    };
    let activity = Arc::new(ConnectionActivity::multiplexed(gateway.read_ahead.clone()));
    let bytes = gateway.bytes_of(visitor.proto);
    let limits = TickLimits::from_timeouts(&gateway.timeouts());
    let http_connection =
        HttpConnection::new(gateway, host_selection, visitor, activity.clone(), shutdown.clone());
    let http_connection = Arc::new(http_connection);
    let body_activity = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| RequestBody::from_http2(body, &body_activity));
        let is_head = request.method() == Method::HEAD;
        // It is moved a few times before it is run, and holds kilobytes: 10 % of the processor time of a request.
        let responding = Box::pin(http_connection.clone().answer(request));
        async move {
            let mut response = responding.await?;
            if is_head {
                keep_only_head(&mut response);
            }
            Ok::<_, ConnectionClosed>(response)
        }
    });
    let mut builder = http2::Builder::new(StreamExecutor(activity.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(max_streams)
        .max_pending_accept_reset_streams(MAX_UNSEEN_RESETS)
        .max_header_list_size(u32::try_from(head.bytes + SPARE_HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(4 * STREAM_WINDOW_BYTES)
        .max_send_buf_size(MAX_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL);
    let socket = MeteredSocket::with_counts(socket, bytes, activity.carried.clone());
    let flood_guard = FloodGuard::new(socket, activity.clone());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(flood_guard), service));
    // Whoever comes later has nothing to be told yet.
    let notice = match shutdown.phase() {
        ShutdownPhase::Running => ShutdownPhase::Draining,
        _ => ShutdownPhase::Graceful,
    };
    let mut timer = ConnectionTimer::new(&activity, limits, shutdown);
    if timer.watch_connection(connection.as_mut(), notice).await == TimerEvent::Shutdown {
        connection.as_mut().graceful_shutdown();
        timer.watch_connection(connection, ShutdownPhase::Forced).await;
    }
}

/// Removes the body of a response to HEAD and keeps its length (RFC 9110, section 9.3.2). hyper would send the
/// body, at which visitors reset the stream.
fn keep_only_head(response: &mut Response<ResponseBody>) {
    if let Some(bytes) = response.body_mut().take_full() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(bytes.len().into());
    }
}

/// Looks at a connection from time to time.
struct ConnectionTimer<'p> {
    activity: &'p ConnectionActivity,
    clock: ActivityTimeouts,
    tick: Duration,
    next: Pin<Box<Sleep>>,
    shutdown: ShutdownSignal,
}

/// Why a connection is not watched any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimerEvent {
    /// It has ended, or its visitor has used up its time.
    Expired,
    /// The gateway shuts down.
    Shutdown,
}

/// How a connection ended.
trait ConnectionOutcome {
    /// Tells what went wrong.
    fn log_error(self);
}

impl ConnectionOutcome for () {
    fn log_error(self) {}
}

impl ConnectionOutcome for hyper::Result<()> {
    fn log_error(self) {
        or_debug!(self, "a connection of a visitor broke");
    }
}

impl<'p> ConnectionTimer<'p> {
    fn new(activity: &'p ConnectionActivity, limits: TickLimits, shutdown: ShutdownSignal) -> Self {
        Self {
            activity,
            clock: ActivityTimeouts::new(limits),
            tick: limits.tick,
            next: Box::pin(sleep(limits.tick)),
            shutdown,
        }
    }

    /// Lets a connection run until it ends, until its visitor has used up its time, or until the
    /// shutdown comes to a phase.
    async fn watch_connection<C: Future<Output: ConnectionOutcome>>(
        &mut self,
        mut connection: Pin<&mut C>,
        phase: ShutdownPhase,
    ) -> TimerEvent {
        poll_fn(|cx| {
            // What goes wrong with a connection concerns its visitor, who knows.
            let ended = connection.as_mut().poll(cx).map(ConnectionOutcome::log_error).is_ready();
            if ended || self.activity.closed.load(Relaxed) || self.is_expired(cx) {
                return Poll::Ready(TimerEvent::Expired);
            }
            if self.shutdown.poll_phase(cx) >= phase {
                Poll::Ready(TimerEvent::Shutdown)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// True when a tick has come, and with it the end.
    fn is_expired(&mut self, cx: &mut Context<'_>) -> bool {
        while self.next.as_mut().poll(cx).is_ready() {
            if self.clock.is_over(self.activity) {
                return true;
            }
            self.next.as_mut().reset(Instant::now() + self.tick);
        }
        false
    }
}
