//! The connection that all visitors of a local service share.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use tokio::io::{AsyncRead, Join, ReadBuf, join};
use tokio::sync::{Mutex, watch};

use ginnel_base::logging::ignore;
use ginnel_http1::MAX_RELAYED_HEAD_BYTES;

use crate::relay::dial::{DIAL_TIMEOUT, Dialer};
use crate::relay::{BoxReader, BoxWriter, LocalStream};

/// How much of one answer the local service may send ahead, in bytes.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// How much of all answers together: no slow visitor may use up what others need.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// How often the local service is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection to a local service at a time, dialled when it is needed.
#[derive(Debug)]
pub struct LocalHttp2Connection {
    dialer: Dialer,
    authority: String,
    state: Mutex<Http2ConnectionState>,
}

#[derive(Debug, Default)]
struct Http2ConnectionState {
    current: Option<Http2Handle>,
    failed: Option<DialFailure>,
}

/// An attempt to dial that failed; those who waited for it need not try again.
#[derive(Debug)]
struct DialFailure {
    at: Instant,
    kind: io::ErrorKind,
    problem: String,
}

/// The shared connection in one visitor's hand.
#[derive(Debug, Clone)]
pub(super) struct Http2Handle {
    sender: SendRequest<Bytes>,
    status: watch::Receiver<Http2Status>,
}

/// The shared connection, and whether it was dialled just now.
pub(super) struct Http2Lease {
    pub shared: Http2Handle,
    pub is_new: bool,
}

#[derive(Debug, Clone)]
enum Http2Status {
    Opening,
    Open,
    /// With the reason.
    Ended(String),
}

impl LocalHttp2Connection {
    /// Nothing is dialled yet; the authority is for requests that name no host.
    pub fn new(dialer: Dialer, authority: String) -> Self {
        Self { dialer, authority, state: Mutex::default() }
    }

    /// What connects to the local service.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// What requests are for that name no host.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// The scheme of requests.
    pub(super) fn scheme(&self) -> &'static str {
        if self.dialer.tls.is_some() { "https" } else { "http" }
    }

    /// The shared connection: the one that there is, or else a new one.
    pub(super) async fn acquire(&self) -> io::Result<Http2Lease> {
        let converted = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(shared) = &state.current
            && shared.takes_requests()
        {
            return Ok(Http2Lease { shared: shared.clone(), is_new: false });
        }
        if let Some(failed) = state.failed.as_ref().filter(|failed| failed.at >= converted) {
            return Err(io::Error::new(failed.kind, failed.problem.clone()));
        }
        match open_connection(&self.dialer).await {
            Ok(shared) => {
                *state = Http2ConnectionState { current: Some(shared.clone()), failed: None };
                Ok(Http2Lease { shared, is_new: true })
            }
            Err(error) => {
                let (kind, problem) = (error.kind(), error.to_string());
                let failed = Some(DialFailure { at: Instant::now(), kind, problem });
                *state = Http2ConnectionState { current: None, failed };
                Err(error)
            }
        }
    }
}

impl Http2Handle {
    /// Starts a request on a stream of its own.
    pub async fn send_request(
        &self,
        request: http::Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        sender.send_request(request, ends)
    }

    /// Whether the local service takes WebSockets (RFC 8441).
    pub fn takes_sockets(&self) -> bool {
        self.sender.is_extended_connect_protocol_enabled()
    }

    /// Whether more requests may follow: it was neither lost nor told to go away.
    pub fn takes_requests(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let is_closing = matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)));
        !is_closing && matches!(*self.status.borrow(), Http2Status::Open)
    }

    /// Waits until the connection has ended.
    pub async fn wait_until_ended(&mut self) {
        let ended = self.status.wait_for(|status| matches!(status, Http2Status::Ended(_))).await;
        ignore(ended, "who told of it is gone only when the connection is");
    }
}

/// Opens a connection; the settings of the local service have come then.
async fn open_connection(dialer: &Dialer) -> io::Result<Http2Handle> {
    let LocalStream { read, write, response_wait, .. } = dialer.dial().await?;
    // Many answers are under way at once: there is always one to wait for.
    response_wait.begin();
    let stream = join(PrefaceReader { read, has_begun: false }, write);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(MAX_RELAYED_HEAD_BYTES as u32);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    let (status_sender, mut status) = watch::channel(Http2Status::Opening);
    tokio::spawn(drive_connection(connection, status_sender));
    let opened = status.wait_for(|status| !matches!(status, Http2Status::Opening));
    let opened =
        tokio::time::timeout(DIAL_TIMEOUT, opened).await?.map_err(io::Error::other)?.clone();
    match opened {
        Http2Status::Ended(reason) => Err(io::Error::other(reason)),
        _ => Ok(Http2Handle { sender, status }),
    }
}

type Http2Driver = Connection<Join<PrefaceReader, BoxWriter>, Bytes>;

/// Lets a connection work until it ends.
async fn drive_connection(mut connection: Http2Driver, status_sender: watch::Sender<Http2Status>) {
    let pings = connection.ping_pong();
    let reason = tokio::select! {
        ended = connection => match ended {
            Ok(()) => "it closed the connection".to_owned(),
            Err(error) => describe_error(&error),
        },
        () = send_pings(pings, &status_sender) => "it stopped responding".to_owned(),
    };
    status_sender.send_replace(Http2Status::Ended(reason));
}

/// Asks the local service from time to time whether it is there; ends when it does not say so.
///
/// What is sent before the first answer to that are its settings.
async fn send_pings(pings: Option<PingPong>, status_sender: &watch::Sender<Http2Status>) {
    // There is one for who asks first.
    let Some(mut pings) = pings else { return };
    loop {
        match tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection knows better why.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
        status_sender.send_if_modified(|status| {
            let opening = matches!(status, Http2Status::Opening);
            *status = Http2Status::Open;
            opening
        });
        tokio::time::sleep(PING_INTERVAL).await;
    }
}

/// Why a connection or a stream failed, in words.
pub(super) fn describe_error(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection".to_owned()
        }
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

/// What the local service sends, which must not begin like HTTP/1.1.
struct PrefaceReader {
    read: BoxReader,
    has_begun: bool,
}

impl AsyncRead for PrefaceReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.read.as_mut().poll_read(cx, buffer))?;
        let received = buffer.filled().get(before..).unwrap_or_default();
        if !std::mem::replace(&mut self.has_begun, true) && received.starts_with(b"HTTP/") {
            return Poll::Ready(Err(io::Error::other("it speaks HTTP/1.1, not HTTP/2")));
        }
        Poll::Ready(Ok(()))
    }
}
