//! One connection, spoken to with HTTP/1.1.
//!
//! The connection is polled by the call that uses it and by nobody else. That saves a task and its
//! wake-ups; the price is that a close by the server, or what it sends unasked, is seen only at the
//! next use (`look`). The kernel is asked then, as the runtime may have slept since.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Api, Cause, Settings};
use crate::http1::{PendingResponse, StrictResponses};
use crate::reuse::{IdleState, Socket, poll_now};

/// The largest body that a client takes.
const MAX_BODY: usize = 64 << 20;
/// How long a connection may have been idle and still carry a `POST`, which is not repeated when it
/// breaks.
const FRESH: Duration = Duration::from_secs(5);

/// True while tests forbid connections to other machines.
static LOOPBACK_ONLY: AtomicBool = AtomicBool::new(false);

/// Forbids connections to other machines in this process, or allows them again; says what was
/// before. It is for tests, which are not to depend on a network.
pub fn loopback_only(forbid: bool) -> bool {
    LOOPBACK_ONLY.swap(forbid, Ordering::Relaxed)
}

/// True while [`loopback_only`] forbids connections to other machines.
pub(super) fn is_loopback_only() -> bool {
    LOOPBACK_ONLY.load(Ordering::Relaxed)
}

/// The half of a connection that moves its bytes.
type Driven = Pin<Box<Connection<TokioIo<StrictResponses<Stream>>, Full<Bytes>>>>;

/// One connection.
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended: dropping it is what tells `sender` and a waiting exchange.
    connection: Option<Driven>,
    /// Told what is asked.
    pending: Arc<PendingResponse>,
    /// True when it has ended with bytes that nobody asked for.
    surplus: bool,
    idle_since: Instant,
    /// True when it has carried a request before.
    pub(super) used: bool,
}

/// Why an exchange on a link failed.
pub(super) struct Fault {
    pub(super) cause: Cause,
    /// The request, when it was handed back unsent.
    pub(super) unsent: bool,
}

impl Link {
    /// Connects.
    pub(super) async fn connect(settings: &Settings) -> Result<Self, Cause> {
        let connected = Stream::connect(settings).await;
        let stream = connected.map_err(|error| unconnected(settings, error))?;
        let pending = Arc::new(PendingResponse::default());
        let stream = StrictResponses::new(stream, pending.clone());
        let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(Cause::Broken)?;
        let connection = Some(Box::pin(connection));
        let idle_since = Instant::now();
        let surplus = false;
        Ok(Self { sender, connection, surplus, pending, idle_since, used: false })
    }

    /// True when the connection was idle for so long that a request that cannot be repeated should
    /// not depend on it.
    pub(super) fn is_old(&self) -> bool {
        self.idle_since.elapsed() > FRESH
    }

    /// What the server has done since the last exchange; to be asked right before the next.
    pub(super) fn look(&mut self) -> IdleState {
        let _ = poll_now(|cx| {
            drive(&mut self.connection, &mut self.surplus, cx);
            Poll::Ready(())
        });
        self.state()
    }

    /// What is known of the server without looking.
    pub(super) fn state(&self) -> IdleState {
        match &self.connection {
            None if self.surplus => IdleState::Surplus,
            Some(_) if !self.sender.is_closed() => IdleState::Quiet,
            _ => IdleState::Closed,
        }
    }

    /// Marks the beginning of an idle time.
    pub(super) fn rest(&mut self) {
        self.used = true;
        self.idle_since = Instant::now();
    }

    /// True when another request may follow.
    pub(super) fn is_reusable(&self) -> bool {
        self.sender.is_ready()
    }

    /// Sends a request and takes the whole answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Fault> {
        self.pending.begin(request.method() == Method::HEAD);
        let reply = self.sender.try_send_request(request);
        let mut exchange = pin!(async {
            let response = reply.await.map_err(|mut error| Fault {
                unsent: error.take_message().is_some(),
                cause: Cause::Broken(error.into_error()),
            })?;
            let (head, body) = response.into_parts();
            let body = collect(body).await.map_err(|cause| Fault { cause, unsent: false })?;
            Ok(Response::from_parts(head, body))
        });
        let (connection, surplus) = (&mut self.connection, &mut self.surplus);
        poll_fn(|cx| {
            drive(connection, surplus, cx);
            if let Poll::Ready(outcome) = exchange.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            // Taking the head is what lets the connection hand out the body.
            drive(connection, surplus, cx);
            exchange.as_mut().poll(cx)
        })
        .await
    }
}

/// Lets a connection work, and drops it at its end.
fn drive(connection: &mut Option<Driven>, surplus: &mut bool, cx: &mut Context<'_>) {
    // How it ended shows in the exchange.
    if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(cx).is_ready()) {
        let ended = connection.take().map(Pin::into_inner);
        *surplus = ended.is_some_and(|ended| !ended.into_parts().read_buf.is_empty());
    }
}

async fn collect(mut body: Incoming) -> Result<Bytes, Cause> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Cause::Broken)?.into_data() else { continue };
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
        if first.len().max(rest.len()) > MAX_BODY {
            return Err(Cause::Body(format!("it is larger than {} MiB", MAX_BODY >> 20)));
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The bytes under the connection.
enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    async fn connect(settings: &Settings) -> io::Result<Self> {
        let (host, port) = (settings.origin.host(), settings.origin.port());
        if is_loopback_only() && !settings.origin.is_loopback() {
            let problem = format!("{host} is not this machine, and only this machine is allowed");
            return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, problem));
        }
        let tcp = match host.parse::<IpAddr>() {
            Ok(address) => TcpStream::connect(SocketAddr::new(address, port)).await?,
            Err(_) => TcpStream::connect((host, port)).await?,
        };
        tcp.set_nodelay(true)?;
        let socket = Socket(tcp);
        if !settings.origin.is_tls() {
            return Ok(Self::Plain(socket));
        }
        let name = host.to_owned().try_into().map_err(io::Error::other)?;
        let connector = TlsConnector::from(settings.roots.config()?);
        Ok(Self::Tls(Box::new(connector.connect(name, socket).await?)))
    }
}

macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Plain($inner) => $call,
            Stream::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(inner) => inner.is_write_vectored(),
            Self::Tls(inner) => inner.is_write_vectored(),
        }
    }
}

fn unconnected(settings: &Settings, error: std::io::Error) -> Cause {
    match (settings.api, error.kind()) {
        (Api::Agent, std::io::ErrorKind::ConnectionRefused) => Cause::NotRunning(error),
        _ => Cause::Connect(error),
    }
}
