//! Speaking HTTP with visitors: HTTP/1.1 and, where TLS agrees on it, HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use crate::gateway::Inner;
use crate::gateway::http::connection::{Entrance, Reception};
use crate::gateway::http::connection_timer::{Clock, HEAD as HEAD_TICKS, Pulse};
use crate::gateway::http::fast_path::{Lane, Left};
use crate::gateway::http::flood_guard::Ration;
use crate::gateway::http::stream_timers::Runner;
use crate::gateway::http::visitor_stream::Line;
use crate::gateway::listener::shutdown::{Call, Listener};
use crate::gateway::listener::socket::Socket;
use crate::gateway::routing::target::{Tls, Visitor};
use crate::net::{self, Connection, Permit};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the end of a connection may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// The largest head of a request, in bytes.
const HEAD: usize = 64 << 10;
/// How much of a connection is buffered at most in either direction, in bytes.
const BUFFER: usize = 128 << 10;
/// How many requests a connection may carry at once with HTTP/2.
const STREAMS: u32 = 128;
/// How much a visitor may send ahead with HTTP/2, for one request, in bytes.
const WINDOW: u32 = 256 << 10;
/// How often an HTTP/2 connection is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);

/// Serves a visitor who speaks HTTP without TLS.
pub(crate) async fn plain(
    edges: Arc<Inner>,
    entrance: Entrance,
    connection: Connection,
    mut bell: Listener,
) {
    let Connection { stream, peer, permit } = connection;
    if !speaks(&edges, &stream, &mut bell).await {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let visitor = Visitor { peer, local, proto: "http", tls: None, passthrough: false };
    http1(edges, entrance, (Socket::Plain(stream), permit), visitor, bell).await;
}

/// Serves a visitor who speaks HTTP over TLS.
pub(crate) async fn secure(
    edges: Arc<Inner>,
    entrance: Entrance,
    connection: Connection,
    mut bell: Listener,
    config: Arc<ServerConfig>,
) {
    let Connection { stream, peer, permit } = connection;
    if !speaks(&edges, &stream, &mut bell).await {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let agreeing = timeout(HANDSHAKE, welcome(&edges, entrance, stream, config)).await;
    let Ok(Some((stream, entrance))) = agreeing else { return };
    let tls = agreed(&stream);
    let is_http2 = tls.alpn == "h2";
    let visitor =
        Visitor { peer, local, proto: "https", tls: Some(Arc::new(tls)), passthrough: false };
    let socket = Socket::Tls(Box::new(stream));
    if is_http2 {
        // Nothing goes on after it, as protocols do that HTTP/1.1 is left for.
        let _permit = permit;
        http2(edges, entrance, socket, visitor, bell).await;
    } else {
        http1(edges, entrance, (socket, permit), visitor, bell).await;
    }
}

/// Waits for the first byte of a visitor who is to speak first; false when none comes, or the bell
/// rings.
pub(crate) async fn speaks(edges: &Inner, stream: &TcpStream, bell: &mut Listener) -> bool {
    let limit = net::FIRST_BYTE_TIMEOUT.min(edges.settings.patience.tick * u32::from(HEAD_TICKS));
    tokio::select! {
        spoke = net::first_byte(stream, limit) => spoke,
        () = bell.wait_for(Call::Close) => false,
    }
}

/// Agrees on TLS with a visitor as the site wants it that the visitor names.
async fn welcome(
    edges: &Inner,
    entrance: Entrance,
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Option<(TlsStream<TcpStream>, Entrance)> {
    let Entrance::Shared(_) = &entrance else {
        return Some((TlsAcceptor::from(config).accept(stream).await.ok()?, entrance));
    };
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.ok()?;
    let name = hello.client_hello().server_name().map(str::to_ascii_lowercase);
    let claim = name.and_then(|name| edges.hosts.find(&name, 443));
    let guard = claim.and_then(|claim| claim.site.get().guard.clone());
    let config = guard.as_ref().map_or(config, |guard| guard.config.clone());
    let stream = hello.into_stream(config).await.ok()?;
    Some((stream, Entrance::Shared(guard)))
}

/// Agrees on TLS with a visitor, who has not forever for it.
pub(crate) async fn handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Option<TlsStream<TcpStream>> {
    timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await.ok()?.ok()
}

/// What TLS has agreed on.
pub(crate) fn agreed(stream: &TlsStream<TcpStream>) -> Tls {
    let (_, connection) = stream.get_ref();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Tls {
        version: connection.protocol_version().and_then(|it| it.as_str()).unwrap_or_default(),
        cipher_suite: connection
            .negotiated_cipher_suite()
            .and_then(|it| it.suite().as_str())
            .unwrap_or_default(),
        sni: connection.server_name().unwrap_or_default().to_owned(),
        alpn: connection.alpn_protocol().map(text).unwrap_or_default(),
        resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
    }
}

async fn http1(
    edges: Arc<Inner>,
    entrance: Entrance,
    (socket, permit): (Socket, Permit),
    visitor: Visitor,
    bell: Listener,
) {
    let pulse = Arc::new(Pulse::default());
    let tick = edges.settings.patience.tick;
    let reception = Reception::new(edges, entrance, visitor, pulse.clone(), bell.clone());
    let reception = Arc::new(reception);
    let mut line = Line::new(socket, pulse.clone(), permit);
    let mut hour = Hour::new(&pulse, tick, bell);
    if !short(&reception, &mut line, &mut hour).await {
        return;
    }
    let service = service_fn(move |request| reception.clone().answer(request));
    let mut builder = http1::Builder::new();
    // A request may have 100 headers; saying so would make the parser slower.
    builder.preserve_header_case(true).max_header_size(HEAD).max_buf_size(BUFFER);
    let mut connection =
        pin!(builder.serve_connection(TokioIo::new(line), service).with_upgrades());
    if hour.watch(connection.as_mut(), Call::Close).await == Struck::Called {
        connection.as_mut().graceful_shutdown();
        hour.watch(connection, Call::Cut).await;
    }
}

/// Serves requests for as long as they go the short way; true when there are others.
async fn short(reception: &Reception, line: &mut Line, hour: &mut Hour<'_>) -> bool {
    let closes = AtomicBool::new(false);
    let mut left = None;
    {
        let lane = Lane::new(reception, line, &closes);
        let mut serving = pin!(async { left = Some(lane.run().await) });
        let struck = hour.watch(serving.as_mut(), Call::Close).await;
        if struck == Struck::Called && hour.pulse.is_answering() {
            closes.store(true, Relaxed);
            hour.watch(serving, Call::Cut).await;
        }
    }
    if left.is_none_or(|left| left == Left::Over) {
        // Whether the visitor still listens does not matter.
        let _ = timeout(FAREWELL, line.shutdown()).await;
    }
    left == Some(Left::Rest)
}

async fn http2(
    edges: Arc<Inner>,
    entrance: Entrance,
    socket: Socket,
    visitor: Visitor,
    bell: Listener,
) {
    let pulse = Arc::new(Pulse::of_many(edges.read_ahead.clone()));
    let tick = edges.settings.patience.tick;
    let reception = Reception::new(edges, entrance, visitor, pulse.clone(), bell.clone());
    let reception = Arc::new(reception);
    let service = service_fn(move |request| reception.clone().answer(request));
    let mut builder = http2::Builder::new(Runner(pulse.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD as u32)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_send_buf_size(BUFFER)
        .keep_alive_interval(PING);
    let ration = Ration::new(socket, pulse.clone());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(ration), service));
    let mut hour = Hour::new(&pulse, tick, bell);
    if hour.watch(connection.as_mut(), Call::Close).await == Struck::Called {
        connection.as_mut().graceful_shutdown();
        hour.watch(connection, Call::Cut).await;
    }
}

/// Looks at a connection from time to time.
struct Hour<'p> {
    pulse: &'p Pulse,
    clock: Clock,
    tick: Duration,
    next: Pin<Box<Sleep>>,
    bell: Listener,
}

/// Why a connection is not watched any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Struck {
    /// It has ended, or its visitor has used up its time.
    Over,
    /// The bell has rung.
    Called,
}

impl<'p> Hour<'p> {
    fn new(pulse: &'p Pulse, tick: Duration, bell: Listener) -> Self {
        Self { pulse, clock: Clock::default(), tick, next: Box::pin(sleep(tick)), bell }
    }

    /// Lets a connection run until it ends, until its visitor has used up its time, or until there
    /// is a call at least as urgent.
    async fn watch<C: Future>(&mut self, mut connection: Pin<&mut C>, call: Call) -> Struck {
        poll_fn(|cx| {
            // What went wrong with a connection concerns its visitor, who knows.
            let ended = connection.as_mut().poll(cx).is_ready();
            if ended || self.pulse.closed.load(Relaxed) || self.strikes(cx) {
                return Poll::Ready(Struck::Over);
            }
            if self.bell.heard(cx) >= call { Poll::Ready(Struck::Called) } else { Poll::Pending }
        })
        .await
    }

    /// True when a tick has come, and with it the end.
    fn strikes(&mut self, cx: &mut Context<'_>) -> bool {
        while self.next.as_mut().poll(cx).is_ready() {
            if self.clock.is_over(self.pulse) {
                return true;
            }
            self.next.as_mut().reset(Instant::now() + self.tick);
        }
        false
    }
}
