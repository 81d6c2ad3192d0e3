//! One connection to an upstream, spoken to with HTTP/2.
//!
//! It carries one request at a time, as connections of HTTP/1.1 do: to an agent, each stands for a
//! connection to the local service. Tasks of its own keep it going.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, Parts, Scheme};
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, join, split};

use ginnel_base::logging::or_debug;
use ginnel_http1::reuse::IdleState;

use crate::Io;
use crate::message::body::BodyError;
use crate::message::request_body::RequestBody;
use crate::message::response_body::UpstreamBody;
use crate::upstream::http1::{ConnectionIdentity, ExchangeError};
use crate::upstream::pool::{PooledConnection, UpstreamPool};

/// How large the head of an answer may be, in bytes.
const MAX_HEAD_BYTES: u32 = 128 << 10;
/// How much of an answer the upstream may send ahead, in bytes.
const WINDOW_BYTES: u32 = 256 << 10;

/// One connection to an upstream.
pub struct Http2Connection {
    sender: SendRequest<RequestBody>,
    /// Whether the upstream has ever said anything.
    any_byte_read: Arc<AtomicBool>,
    idle_since: Option<Instant>,
    identity: Option<ConnectionIdentity>,
}

impl Http2Connection {
    /// Speaks HTTP/2 over a connection, knowing that the upstream does.
    pub async fn new(io: Io, identity: Option<ConnectionIdentity>) -> Result<Self, hyper::Error> {
        let any_byte_read = Arc::<AtomicBool>::default();
        let (read, write) = split(io);
        let io = join(Http2ObservedIo { read, anything: any_byte_read.clone() }, write);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .max_header_list_size(MAX_HEAD_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        tokio::spawn(async move {
            // How it ended shows in the exchange.
            or_debug!(connection.await, "a connection to an upstream broke");
        });
        Ok(Self { sender, any_byte_read, idle_since: None, identity })
    }

    /// Marks the beginning of an idle time.
    pub fn mark_idle(&mut self) {
        self.idle_since = Some(Instant::now());
    }

    /// Sends a request and waits for the head of the answer.
    pub async fn send_request(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let (request, before) = translate_request(request);
        let mut error = match self.sender.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        Err(match error.take_message() {
            Some(request) => ExchangeError::Unsent(Box::new(before.restore_request(request))),
            None if !self.any_byte_read.load(Relaxed) => ExchangeError::Silent,
            // The upstream closed a connection that it had kept, just as it was used.
            None if self.idle_since.is_some()
                && (self.sender.is_closed() || is_refusal(error.error())) =>
            {
                ExchangeError::Silent
            }
            None => ExchangeError::Broken,
        })
    }
}

impl PooledConnection for Http2Connection {
    fn identity(&self) -> Option<&ConnectionIdentity> {
        self.identity.as_ref()
    }

    fn idle_time(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    /// There is no surplus: answers are told apart by their streams.
    fn idle_state(&mut self) -> IdleState {
        if self.sender.is_ready() { IdleState::Quiet } else { IdleState::Closed }
    }
}

/// What a request said in another way before it was translated.
struct RequestParts {
    uri: Uri,
    host: Option<HeaderValue>,
}

/// A request as HTTP/2 has it, with its host in the address. Asking for another protocol is left out,
/// as an upstream may overlook it.
fn translate_request(mut request: Request<RequestBody>) -> (Request<RequestBody>, RequestParts) {
    let headers = request.headers_mut();
    headers.remove(CONNECTION);
    headers.remove(UPGRADE);
    let host = headers.remove(HOST);
    let before = RequestParts { uri: request.uri().clone(), host };
    let named = before.host.as_ref().and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(named.unwrap_or(Authority::from_static("localhost")));
    parts.path_and_query = before.uri.path_and_query().cloned();
    // It cannot fail where there is a path, and every request has one.
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
    (request, before)
}

impl RequestParts {
    /// The request as it was, for an upstream that may speak something else.
    fn restore_request(self, mut request: Request<RequestBody>) -> Request<RequestBody> {
        *request.uri_mut() = self.uri;
        *request.version_mut() = Version::HTTP_11;
        if let Some(host) = self.host {
            request.headers_mut().insert(HOST, host);
        }
        request
    }
}

/// Whether the upstream has not looked at the request (RFC 9113, section 8.7).
fn is_refusal(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let by_stream = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let by_goodbye = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    error.is_remote() && (by_stream || by_goodbye)
}

/// The body of an answer, with the connection that it comes from.
pub struct Http2Body {
    body: Incoming,
    /// Goes back to the pool at the end of the body.
    link: Option<Http2Connection>,
    pool: Option<Arc<UpstreamPool>>,
}

impl Http2Body {
    /// The rest of an answer; the connection goes to `pool` afterwards.
    pub fn new(body: Incoming, link: Http2Connection, pool: Option<Arc<UpstreamPool>>) -> Self {
        let mut relay = Self { body, link: Some(link), pool };
        if relay.body.is_end_stream() {
            relay.finish();
        }
        relay
    }

    /// Gives the connection back.
    fn finish(&mut self) {
        if let Some(mut link) = self.link.take()
            && let Some(pool) = self.pool.take()
            && pool.permits_reuse(link.idle_state())
        {
            link.mark_idle();
            pool.http2.put(link);
        }
    }
}

impl UpstreamBody for Http2Body {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.finish();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What an upstream sends, remembering whether it has ever sent anything.
struct Http2ObservedIo {
    read: ReadHalf<Io>,
    anything: Arc<AtomicBool>,
}

impl AsyncRead for Http2ObservedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.read).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.anything.store(true, Relaxed);
        }
        read
    }
}
