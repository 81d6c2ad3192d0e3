//! One connection to an upstream, spoken to with HTTP/1.1.
//!
//! The connection is polled by the request that uses it and by nobody else, which saves a task and
//! its wake-ups. What a request waits for can only come out of that polling, so it is waited for
//! without a waker.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind::InvalidData};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gateway::Io;
use crate::gateway::http::body::RequestBody;
use crate::gateway::routing::target::RouteRef;
use crate::gateway::upstream::connection::UpstreamConnection;
use crate::gateway::upstream::pool::{PooledConnection, UpstreamPool};
use crate::http1::{PendingResponse, StrictResponses};
use crate::reuse::{IdleState, poll_now};

/// How much of an answer is buffered at most, in bytes; its head must fit.
const MAX_BUFFER_BYTES: usize = 128 << 10;

/// One connection to an upstream.
pub(crate) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    /// Dropping it is what tells `sender` and a waiting exchange of its end.
    connection: Option<Box<Connection<TokioIo<ObservedIo>, RequestBody>>>,
    /// True when the connection must not be polled again.
    ended: bool,
    /// Told what is asked.
    pending: Arc<PendingResponse>,
    idle_since: Option<Instant>,
    /// What the connection has named at its beginning; none when it named nobody.
    identity: Option<ConnectionIdentity>,
}

/// Whose requests a connection carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionIdentity {
    /// The address of the visitor.
    pub address: IpAddr,
    /// What led the visitor here.
    pub route_ref: RouteRef,
}

/// Why an exchange failed.
pub(crate) enum ExchangeError {
    /// Nothing of the request was sent.
    Unsent(Box<Request<RequestBody>>),
    /// The upstream closed without a byte.
    Silent,
    /// The upstream closed early, or sent something that is no HTTP.
    Broken,
}

impl Http1Connection {
    /// Speaks HTTP over a connection.
    pub(crate) async fn new(
        io: Io,
        identity: Option<ConnectionIdentity>,
    ) -> Result<Self, hyper::Error> {
        let mut builder = http1::Builder::new();
        builder.preserve_header_case(true).max_buf_size(MAX_BUFFER_BYTES);
        let pending = Arc::new(PendingResponse::default());
        let io = StrictResponses::new(io, pending.clone());
        let (sender, connection) =
            builder.handshake(TokioIo::new(ObservedIo { io, anything: false })).await?;
        let connection = Some(Box::new(connection));
        Ok(Self { sender, connection, ended: false, pending, idle_since: None, identity })
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        self.pending.begin(request.method() == Method::HEAD);
        let mut reply = pin!(self.sender.try_send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        let mut silent = false;
        let replied = poll_fn(|cx| {
            drive(connection, ended, cx);
            let unwoken = &mut Context::from_waker(Waker::noop());
            if let Poll::Ready(replied) = reply.as_mut().poll(unwoken) {
                return Poll::Ready(replied);
            }
            if *ended {
                silent =
                    connection.take().is_some_and(|it| !it.into_parts().io.into_inner().anything);
                return reply.as_mut().poll(unwoken);
            }
            Poll::Pending
        });
        let outcome = replied.await;
        outcome.map_err(|mut error| match error.take_message() {
            Some(request) => ExchangeError::Unsent(Box::new(request)),
            None if silent || self.heard_nothing() => ExchangeError::Silent,
            None => ExchangeError::Broken,
        })
    }

    /// The bytes under the connection, after the upstream has agreed to speak something else, and
    /// what it has said of that already.
    pub(crate) async fn into_raw(mut self) -> Option<(Io, Bytes)> {
        poll_fn(|cx| {
            self.drive(cx);
            if self.ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let parts = self.connection?.into_parts();
        Some((parts.io.into_inner().io.into_inner(), parts.read_buf))
    }

    /// Marks the beginning of an idle time.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Some(Instant::now());
    }

    fn heard_nothing(&mut self) -> bool {
        let connection = self.connection.take();
        connection.is_some_and(|connection| !connection.into_parts().io.into_inner().anything)
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, cx);
    }

    /// Whether it ended with bytes that nobody has asked for.
    fn end_state(&mut self) -> IdleState {
        let rest = self.connection.take().map(|connection| connection.into_parts().read_buf);
        IdleState::at_end(&rest.unwrap_or_default())
    }
}

impl PooledConnection for Http1Connection {
    fn identity(&self) -> Option<&ConnectionIdentity> {
        self.identity.as_ref()
    }

    fn idle(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    fn state(&mut self) -> IdleState {
        let _ = poll_now(|cx| {
            self.drive(cx);
            Poll::Ready(())
        });
        if self.ended {
            return self.end_state();
        }
        if self.sender.is_ready() { IdleState::Quiet } else { IdleState::Closed }
    }
}

/// Lets a connection work.
fn drive(
    connection: &mut Option<Box<Connection<TokioIo<ObservedIo>, RequestBody>>>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) {
    // How it ended shows in the exchange.
    if !*ended && let Some(connection) = connection {
        *ended = connection.poll_without_shutdown(cx).is_ready();
    }
}

/// The body of an answer, with the connection that it comes from.
pub(crate) struct Http1Body {
    body: Incoming,
    /// Goes back to the pool at the end of the body.
    link: Option<Http1Connection>,
    pool: Option<Arc<UpstreamPool>>,
}

impl Http1Body {
    /// The rest of an answer; the connection goes to `pool` afterwards.
    pub(crate) fn new(
        body: Incoming,
        link: Http1Connection,
        pool: Option<Arc<UpstreamPool>>,
    ) -> Self {
        let mut relay = Self { body, link: Some(link), pool };
        relay.finish(false);
        relay
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let unwoken = &mut Context::from_waker(Waker::noop());
        let mut frame = Pin::new(&mut self.body).poll_frame(unwoken);
        if let (Poll::Pending, Some(link)) = (&frame, &mut self.link) {
            link.drive(cx);
            if link.ended {
                // Tells the body that nothing more will come.
                link.connection = None;
            }
            frame = Pin::new(&mut self.body).poll_frame(unwoken);
        }
        // A body in chunks does not know that it has ended before it says so.
        let ended = matches!(frame, Poll::Ready(None));
        self.finish(ended);
        frame
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Gives the connection back at the end of the body.
    fn finish(&mut self, ended: bool) {
        if (ended || self.body.is_end_stream())
            && let Some(mut link) = self.link.take()
            && let Some(pool) = self.pool.take()
            && pool.permits(link.state())
        {
            link.rest();
            pool.connections.put(UpstreamConnection::Http1(link));
        }
    }
}

/// A connection to an upstream that remembers whether it has ever said anything.
struct ObservedIo {
    io: StrictResponses<Io>,
    anything: bool,
}

impl AsyncRead for ObservedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        let is_invalid = matches!(&read, Poll::Ready(Err(error)) if error.kind() == InvalidData);
        this.anything |= is_invalid || buffer.filled().len() > before;
        read
    }
}

impl AsyncWrite for ObservedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
