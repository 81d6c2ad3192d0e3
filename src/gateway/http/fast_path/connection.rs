//! A visitor's connection for as long as all of its requests go the fast path.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::gateway::http::connection::HttpConnection;
use crate::gateway::http::error_response::{self, ErrorResponse};
use crate::gateway::http::fast_path::request::{self, FastPathRequest, RequestMatch};
use crate::gateway::http::fast_path::response::{
    self, FastPathResponse, MalformedResponse, ResponseOptions,
};
use crate::gateway::http::fast_path::response_timeout::ResponseTimeout;
use crate::gateway::http::fast_path::upstream_connection::RawConnection;
use crate::gateway::http::visitor_stream::VisitorStream;
use crate::gateway::routing::target::RouteRef;
use crate::gateway::upstream::forward::{Upstream, within};
use crate::http1::Body;
use crate::reuse::IdleState;

/// How long a head may be; a longer one goes the full path.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How much is read of later requests while one is under way.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;
/// How large the buffers are that a connection keeps.
const MAX_IDLE_BUFFER_BYTES: usize = 8 << 10;
/// When so much came at once, more is taken at once from then on.
const MIN_READ_BYTES: usize = MAX_IDLE_BUFFER_BYTES / 2;
/// How much is taken at once of an answer that comes fast.
const BULK_READ_BYTES: usize = 64 << 10;
/// What is shorter is sent together with the head before it.
const MAX_COALESCED_BYTES: usize = 16 << 10;
/// How many provisional answers may come before the final one.
const MAX_PROVISIONAL_RESPONSES: usize = 64;

/// A visitor's connection for as long as all of its requests go the fast path.
pub(crate) struct FastPathConnection<'l> {
    http_connection: &'l HttpConnection,
    stream: &'l mut VisitorStream,
    /// True when the connection is to close after the request that is under way.
    closes: &'l AtomicBool,
    /// What was read of the visitor and not used yet.
    buffer: BytesMut,
    /// What was read of the agent and not used yet.
    answer: BytesMut,
    /// What is written next.
    out: Vec<u8>,
    timeout: ResponseTimeout,
}

/// How serving on the fast path ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastPathExit {
    /// The rest of the connection is for the full path.
    Handover,
    /// It is over, and everybody knows.
    Finished,
    /// It was cut off, and that is how it shall look.
    Aborted,
}

/// How an exchange ended.
enum ExchangeEnd {
    /// Well: another may follow.
    Completed,
    /// Before anything of it was done that may not be done again.
    NotStarted,
    /// Badly: the connection is of no more use.
    Failed,
}

/// Why there is no head of an answer.
enum HeadError {
    /// The agent closed without a byte.
    Silent,
    /// It closed early, or said something that is no HTTP.
    Malformed,
    /// It took too long.
    Timeout,
    /// The visitor has left.
    VisitorLeft,
}

/// What was heard while more of an answer is waited for.
enum ReadEvent {
    /// So many bytes of the agent; none at its end.
    Response(usize),
    /// The visitor has left.
    VisitorLeft,
    /// Nothing, for too long.
    Timeout,
}

impl<'l> FastPathConnection<'l> {
    pub(crate) fn new(
        http_connection: &'l HttpConnection,
        stream: &'l mut VisitorStream,
        closes: &'l AtomicBool,
    ) -> Self {
        let timeout = ResponseTimeout::new(http_connection.response_timeout());
        let (buffer, answer) = (BytesMut::new(), BytesMut::new());
        Self { http_connection, stream, closes, buffer, answer, out: Vec::new(), timeout }
    }

    /// Serves requests for as long as they are plain.
    pub(crate) async fn run(mut self) -> FastPathExit {
        loop {
            let request = match self.next().await {
                Ok(Some(request)) => request,
                Ok(None) if self.buffer.is_empty() => return FastPathExit::Finished,
                Ok(None) => return self.leave(),
                Err(_) => return FastPathExit::Aborted,
            };
            let done = match self.upstream_of(&request) {
                Some((upstream, route_ref)) => self.exchange(&request, &upstream, route_ref).await,
                None => ExchangeEnd::NotStarted,
            };
            match done {
                ExchangeEnd::NotStarted => return self.leave(),
                ExchangeEnd::Completed if self.closes(&request) => return FastPathExit::Finished,
                ExchangeEnd::Completed => self.buffer.advance(request.length),
                ExchangeEnd::Failed => return FastPathExit::Aborted,
            }
            self.shrink_buffers();
        }
    }

    /// Leaves what was read to others.
    fn leave(self) -> FastPathExit {
        self.stream.put_back(self.buffer);
        FastPathExit::Handover
    }

    /// Where a request goes, where that is all there is to do.
    fn upstream_of(&self, request: &FastPathRequest) -> Option<(Upstream, RouteRef)> {
        if request.is_forwarded && self.http_connection.trusts_peer() {
            return None;
        }
        let text = |place: &Range<usize>| str::from_utf8(self.buffer.get(place.clone())?).ok();
        self.http_connection.fast_path_target(text(&request.host)?, text(&request.path)?)
    }

    /// The next request; none when it is not plain, or there is no more.
    async fn next(&mut self) -> io::Result<Option<FastPathRequest>> {
        loop {
            match request::classify(&self.buffer) {
                RequestMatch::Eligible(request) => return Ok(Some(request)),
                RequestMatch::Incomplete if self.buffer.len() < MAX_HEAD_BYTES => {}
                _ => return Ok(None),
            }
            self.buffer.reserve(MIN_READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn exchange(
        &mut self,
        request: &FastPathRequest,
        upstream: &Upstream,
        route_ref: RouteRef,
    ) -> ExchangeEnd {
        // From here on a graceful stop waits for the answer.
        let _answering = self.http_connection.answering();
        let visitor = self.http_connection.visitor();
        let identity = upstream.identity(visitor, &route_ref);
        let mut upstream_connection = match upstream.pool.raw_connections.take(identity.as_ref()) {
            Some(upstream_connection) => upstream_connection,
            None => match within(upstream.dial(visitor, &route_ref)).await {
                Ok(Ok(io)) => RawConnection::new(io, identity),
                _ => return ExchangeEnd::NotStarted,
            },
        };
        let head = match self.send_request(request, &mut upstream_connection).await {
            Ok(head) => head,
            // The agent closed a connection that it had kept, just as it was used.
            Err(HeadError::Silent) if upstream_connection.is_used() && request.is_safe => {
                return ExchangeEnd::NotStarted;
            }
            Err(HeadError::Silent) if !upstream_connection.is_used() => {
                return self.fail(request, error_response::UNREACHABLE).await;
            }
            Err(HeadError::Silent | HeadError::Malformed) => {
                return self.fail(request, error_response::BROKEN).await;
            }
            Err(HeadError::Timeout) => return self.fail(request, error_response::LATE).await,
            Err(HeadError::VisitorLeft) => return ExchangeEnd::Failed,
        };
        if head.body.check(&self.answer).is_err() {
            return self.fail(request, error_response::BROKEN).await;
        }
        if self.pass_on(head.body, &mut upstream_connection).await.is_err() {
            return ExchangeEnd::Failed;
        }
        if upstream.pool.permits(IdleState::after(&self.answer)) && head.keep_alive {
            upstream_connection.rest();
            upstream.pool.raw_connections.put(upstream_connection);
        }
        ExchangeEnd::Completed
    }

    fn closes(&self, request: &FastPathRequest) -> bool {
        request.closes || self.closes.load(Relaxed)
    }

    fn options(&self, request: &FastPathRequest) -> ResponseOptions<'l> {
        ResponseOptions {
            to_head: request.is_head,
            closes: self.closes(request),
            code_prefix: self.http_connection.code_prefix(),
        }
    }

    /// Answers for the agent.
    async fn fail(&mut self, request: &FastPathRequest, error: ErrorResponse) -> ExchangeEnd {
        self.out.clear();
        response::write_error(error, self.options(request), &mut self.out);
        match self.send(0, b"").await {
            Ok(()) => ExchangeEnd::Completed,
            Err(_) => ExchangeEnd::Failed,
        }
    }

    /// Sends a request, and reads the head of the final answer, which lies in `out` then.
    async fn send_request(
        &mut self,
        request: &FastPathRequest,
        upstream_connection: &mut RawConnection,
    ) -> Result<FastPathResponse, HeadError> {
        self.out.clear();
        self.answer.clear();
        request::rewrite(&self.buffer, request, self.http_connection.origin(), &mut self.out);
        upstream_connection.io.write_all(&self.out).await.map_err(|_| HeadError::Silent)?;
        upstream_connection.io.flush().await.map_err(|_| HeadError::Silent)?;
        self.out.clear();
        self.timeout.begin();
        let mut provisional = 0;
        loop {
            match response::read(&self.answer, self.options(request), &mut self.out) {
                Ok(None) => self.read_head(upstream_connection, provisional).await?,
                Ok(Some(head)) if head.status >= 200 => {
                    self.answer.advance(head.length);
                    return Ok(head);
                }
                // Nobody has asked for another protocol.
                Ok(Some(FastPathResponse { status: 101, .. })) | Err(MalformedResponse) => {
                    return Err(HeadError::Malformed);
                }
                Ok(Some(head)) => {
                    self.answer.advance(head.length);
                    provisional += 1;
                    if provisional > MAX_PROVISIONAL_RESPONSES {
                        return Err(HeadError::Malformed);
                    }
                }
            }
        }
    }

    /// Waits for more of a head.
    async fn read_head(
        &mut self,
        upstream_connection: &mut RawConnection,
        provisional: usize,
    ) -> Result<(), HeadError> {
        match self.read_event(upstream_connection, true).await {
            Ok(ReadEvent::Response(1..)) => Ok(()),
            Ok(ReadEvent::VisitorLeft) => Err(HeadError::VisitorLeft),
            Ok(ReadEvent::Timeout) => Err(HeadError::Timeout),
            _ if self.answer.is_empty() && provisional == 0 => Err(HeadError::Silent),
            _ => Err(HeadError::Malformed),
        }
    }

    /// Waits for more of the answer; meanwhile it is seen that the visitor leaves.
    async fn read_event(
        &mut self,
        upstream_connection: &mut RawConnection,
        limited: bool,
    ) -> io::Result<ReadEvent> {
        let Self { stream, buffer, answer, timeout, .. } = self;
        answer.reserve(MIN_READ_BYTES);
        poll_fn(|cx| {
            if let Poll::Ready(heard) = pin!(upstream_connection.io.read_buf(answer)).poll(cx) {
                return Poll::Ready(heard.map(ReadEvent::Response));
            }
            while buffer.len() < MAX_READ_AHEAD_BYTES && !stream.has_refused() {
                buffer.reserve(MIN_READ_BYTES);
                match pin!(stream.read_buf(buffer)).poll(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) if stream.has_refused() => {}
                    Poll::Ready(_) => return Poll::Ready(Ok(ReadEvent::VisitorLeft)),
                    Poll::Pending => break,
                }
            }
            if limited && timeout.poll(cx).is_ready() {
                return Poll::Ready(Ok(ReadEvent::Timeout));
            }
            Poll::Pending
        })
        .await
    }

    /// Passes the answer on: its head, which lies in `out`, and its body.
    async fn pass_on(
        &mut self,
        mut body: Body,
        upstream_connection: &mut RawConnection,
    ) -> io::Result<()> {
        let chunks = body == Body::UntilClose;
        loop {
            let taken = body.take(&self.answer, |_| {}).map_err(|_| io::ErrorKind::InvalidData)?;
            let framed = chunks && taken > 0;
            if framed {
                self.out.extend_from_slice(format!("{taken:x}\r\n").as_bytes());
            }
            self.send(taken, if framed { b"\r\n" } else { b"" }).await?;
            if body.is_done() {
                return Ok(());
            }
            if taken >= MIN_READ_BYTES {
                self.answer.reserve(BULK_READ_BYTES);
            }
            match self.read_event(upstream_connection, false).await? {
                ReadEvent::Response(1..) => {}
                ReadEvent::Response(0) if chunks => return self.send(0, b"0\r\n\r\n").await,
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Sends what lies in `out`, so much of the answer, and an ending.
    async fn send(&mut self, taken: usize, ending: &[u8]) -> io::Result<()> {
        let piece = self.answer.get(..taken).unwrap_or_default();
        if self.out.is_empty() && ending.is_empty() {
            self.stream.write_all(piece).await?;
        } else if taken <= MAX_COALESCED_BYTES {
            self.out.extend_from_slice(piece);
            self.out.extend_from_slice(ending);
            self.stream.write_all(&self.out).await?;
        } else {
            self.stream.write_all(&self.out).await?;
            self.stream.write_all(piece).await?;
            self.stream.write_all(ending).await?;
        }
        self.out.clear();
        self.answer.advance(taken);
        self.stream.flush().await
    }

    /// Gives large buffers back, so that a connection that waits holds little.
    fn shrink_buffers(&mut self) {
        for buffer in [&mut self.buffer, &mut self.answer] {
            if buffer.is_empty() && buffer.capacity() > MAX_IDLE_BUFFER_BYTES {
                *buffer = BytesMut::new();
            }
        }
        self.out.shrink_to(MAX_IDLE_BUFFER_BYTES);
    }
}
