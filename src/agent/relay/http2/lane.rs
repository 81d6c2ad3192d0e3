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

use crate::agent::relay::dial::{Dialer, PATIENCE};
use crate::agent::relay::head::LONGEST;
use crate::agent::relay::{Connected, Reader, Writer};

/// How much of one answer the local service may send ahead, in bytes.
const WINDOW: u32 = 256 << 10;
/// How much of all answers together: no slow visitor may use up what others need.
const WINDOWS: u32 = (1 << 31) - 1;
/// How often the local service is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const PONG: Duration = Duration::from_secs(20);

/// One connection to a local service at a time, dialled when it is needed.
#[derive(Debug)]
pub struct Lane {
    dialer: Dialer,
    authority: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Shared>,
    failed: Option<Failed>,
}

/// An attempt to dial that failed; those who waited for it need not try again.
#[derive(Debug)]
struct Failed {
    at: Instant,
    kind: io::ErrorKind,
    problem: String,
}

/// The shared connection in one visitor's hand.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    sender: SendRequest<Bytes>,
    progress: watch::Receiver<Progress>,
}

/// The shared connection, and whether it was dialled just now.
pub(super) struct Found {
    pub shared: Shared,
    pub fresh: bool,
}

#[derive(Debug, Clone)]
enum Progress {
    Opening,
    Open,
    /// With the reason.
    Ended(String),
}

impl Lane {
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
    pub(super) async fn find(&self) -> io::Result<Found> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(shared) = &state.current
            && shared.takes_requests()
        {
            return Ok(Found { shared: shared.clone(), fresh: false });
        }
        if let Some(failed) = state.failed.as_ref().filter(|failed| failed.at >= asked) {
            return Err(io::Error::new(failed.kind, failed.problem.clone()));
        }
        match open(&self.dialer).await {
            Ok(shared) => {
                *state = State { current: Some(shared.clone()), failed: None };
                Ok(Found { shared, fresh: true })
            }
            Err(error) => {
                let (kind, problem) = (error.kind(), error.to_string());
                let failed = Some(Failed { at: Instant::now(), kind, problem });
                *state = State { current: None, failed };
                Err(error)
            }
        }
    }
}

impl Shared {
    /// Starts a request on a stream of its own.
    pub async fn send(
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
        let told_off = matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_)));
        !told_off && matches!(*self.progress.borrow(), Progress::Open)
    }

    /// Waits until the connection has ended.
    pub async fn ended(&mut self) {
        // Who told of it is gone only when the connection is.
        let _ = self.progress.wait_for(|progress| matches!(progress, Progress::Ended(_))).await;
    }
}

/// Opens a connection; the settings of the local service have come then.
async fn open(dialer: &Dialer) -> io::Result<Shared> {
    let Connected { read, write, awaited, .. } = dialer.dial().await?;
    // Many answers are under way at once: there is always one to wait for.
    awaited.begin();
    let stream = join(Opening { read, begun: false }, write);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOWS)
        .max_header_list_size(LONGEST as u32);
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    let (tell, mut progress) = watch::channel(Progress::Opening);
    tokio::spawn(keep(connection, tell));
    let opened = progress.wait_for(|progress| !matches!(progress, Progress::Opening));
    let opened = tokio::time::timeout(PATIENCE, opened).await?.map_err(io::Error::other)?.clone();
    match opened {
        Progress::Ended(reason) => Err(io::Error::other(reason)),
        _ => Ok(Shared { sender, progress }),
    }
}

type Kept = Connection<Join<Opening, Writer>, Bytes>;

/// Lets a connection work until it ends.
async fn keep(mut connection: Kept, tell: watch::Sender<Progress>) {
    let pings = connection.ping_pong();
    let reason = tokio::select! {
        ended = connection => match ended {
            Ok(()) => "it closed the connection".to_owned(),
            Err(error) => explained(&error),
        },
        () = ask(pings, &tell) => "it does not answer any more".to_owned(),
    };
    tell.send_replace(Progress::Ended(reason));
}

/// Asks the local service from time to time whether it is there; ends when it does not say so.
///
/// What is sent before the first answer to that are its settings.
async fn ask(pings: Option<PingPong>, tell: &watch::Sender<Progress>) {
    // There is one for who asks first.
    let Some(mut pings) = pings else { return };
    loop {
        match tokio::time::timeout(PONG, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection knows better why.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return,
        }
        tell.send_if_modified(|progress| {
            let opening = matches!(progress, Progress::Opening);
            *progress = Progress::Open;
            opening
        });
        tokio::time::sleep(PING).await;
    }
}

/// Why a connection or a stream failed, in words.
pub(super) fn explained(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            "it closed the connection".to_owned()
        }
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

/// What the local service sends, which must not begin like HTTP/1.1.
struct Opening {
    read: Reader,
    begun: bool,
}

impl AsyncRead for Opening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.read.as_mut().poll_read(cx, buffer))?;
        let came = buffer.filled().get(before..).unwrap_or_default();
        if !std::mem::replace(&mut self.begun, true) && came.starts_with(b"HTTP/") {
            return Poll::Ready(Err(io::Error::other("it speaks HTTP/1.1, not HTTP/2")));
        }
        Poll::Ready(Ok(()))
    }
}
