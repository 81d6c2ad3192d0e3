//! The fast path of the requests of one visitor's connection.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use ginnel_base::logging::ignore;
use ginnel_http1::reuse::IdleState;
use ginnel_http1::{
    Body, ExpectedResponse, Expects, HOLD_NOTICE, HeadProgress, LAST_CHUNK, LINE_END, RequestHead,
    ResponseHeadReader, write_chunk_size,
};

use crate::message::error_response::{self, ErrorResponse};
use crate::message::node_notice::NodeNotice;
use crate::message::visitor::RouteRef;
use crate::message::visitor_stream::VisitorStream;
use crate::metrics::RequestRecord;
use crate::request_phase::RequestPhase;
use crate::server::fast_path::request::{self, FastPathRequest};
use crate::server::fast_path::request_body::{RequestBodyCopy, RequestBodyError};
use crate::server::fast_path::response::{self, FastPathResponse, ResponseOptions, ResponseSource};
use crate::server::fast_path::response_timeout::ResponseTimeout;
use crate::server::fast_path::routing::{FastPathTarget, NodeFailure, RequestRouting};
use crate::server::fast_path::spare_buffers::{self, MAX_IDLE_BUFFER_BYTES};
use crate::upstream::forward::Upstream;
use crate::upstream::http1::Http1Connection;
use crate::upstream::target::DialError;

/// When so much came at once, more is taken at once from then on.
const MIN_READ_BYTES: usize = MAX_IDLE_BUFFER_BYTES / 2;
/// How much is taken at once of an answer that comes fast.
const BULK_READ_BYTES: usize = 64 << 10;
/// What is shorter is sent together with the head before it.
const MAX_COALESCED_BYTES: usize = 16 << 10;

/// A visitor's connection, and what carrying requests as bytes needs.
pub struct FastPathConnection<'l, R> {
    http_connection: &'l R,
    pub stream: &'l mut VisitorStream,
    closing: &'l Closing,
    /// Whether the response to the request under way says that the connection closes.
    closes_behind: bool,
    /// What was read of the visitor and not used yet.
    pub buffer: BytesMut,
    /// How many bytes at the beginning of that belong to the request under way, which may be sent again.
    unread: usize,
    /// The body of that request.
    body: RequestBodyCopy,
    /// What was read of the upstream and not used yet; without a buffer between requests.
    answer: BytesMut,
    /// What is written next.
    pub out: Vec<u8>,
    timeout: ResponseTimeout,
    /// The status of the response that was begun; 0 before that.
    status: u16,
}

/// Whether a connection is to close.
#[derive(Default)]
pub struct Closing {
    /// Behind the next response, which says so.
    pub after_next: AtomicBool,
    /// Behind the response that is under way.
    pub now: AtomicBool,
}

/// How an exchange ended.
pub enum ExchangeEnd {
    /// Well: another may follow.
    Completed,
    /// Before anything of it was done that may not be done again; at a node that has failed, perhaps.
    NotStarted(Option<NodeFailure>),
    /// Badly: the connection is of no more use.
    Failed,
}

/// Why there is no head of an answer.
enum AnswerError {
    /// The upstream closed without a byte.
    Silent,
    /// It closed early, or said something that is no HTTP.
    Malformed,
    /// It took too long.
    Timeout,
    /// The rest of the request does not come.
    Request(RequestBodyError),
}

/// What was heard while more of an answer is waited for.
enum ReadEvent {
    /// So many bytes of the upstream; none at its end.
    Response(usize),
    /// The rest of the request does not come.
    Request(RequestBodyError),
    /// Nothing, for too long.
    Timeout,
}

impl<'l, R: RequestRouting> FastPathConnection<'l, R> {
    pub fn new(
        http_connection: &'l R,
        stream: &'l mut VisitorStream,
        closing: &'l Closing,
    ) -> Self {
        let timeout = ResponseTimeout::new(http_connection.response_timeout());
        let (buffer, answer, out) = (BytesMut::new(), BytesMut::new(), Vec::new());
        let (unread, body) = (0, RequestBodyCopy::NONE);
        Self {
            http_connection,
            stream,
            closing,
            closes_behind: false,
            buffer,
            unread,
            body,
            answer,
            out,
            timeout,
            status: 0,
        }
    }

    /// What a request needs to be carried; none where there is more to do.
    pub fn fast_request(
        &self,
        head: &RequestHead<'_, '_>,
    ) -> Option<(FastPathRequest, FastPathTarget)> {
        let mut request = request::classify_request(head)?;
        if request.is_forwarded && self.http_connection.trusts_peer() {
            return None;
        }
        let text = |place: &Range<usize>| str::from_utf8(head.bytes.get(place.clone())?).ok();
        let (host, path) = (text(&request.host)?, text(&request.path)?);
        let mut target = self.http_connection.fast_path_target(head, host, path)?;
        request.changes = std::mem::take(&mut target.changes);
        Some((request, target))
    }

    /// Lets go of a request that was answered; true when another may follow.
    pub fn complete_request(&mut self, request: &FastPathRequest) -> bool {
        self.buffer.advance(std::mem::take(&mut self.unread));
        if self.body.is_complete() {
            self.stream.set_expected(Expects::Nothing);
        }
        !self.closes_connection(request) && self.body.is_complete()
    }

    /// Leaves what was read to others.
    pub fn put_back_buffer(&mut self) {
        self.stream.put_back(std::mem::take(&mut self.buffer));
    }

    /// Whether the connection is to close after the request that is under way.
    pub fn is_closing(&self) -> bool {
        self.closing.now.load(Relaxed)
    }

    /// Whether the connection is to close behind the next response.
    pub fn is_draining(&self) -> bool {
        self.closing.after_next.load(Relaxed)
    }

    /// Carries a request to an upstream, and its answer back.
    pub async fn exchange_with_upstream(
        &mut self,
        request: &FastPathRequest,
        target: FastPathTarget,
    ) -> ExchangeEnd {
        // From here on a graceful stop waits for the answer.
        let _answering = self.http_connection.track_request();
        self.closes_behind = self.is_draining();
        let FastPathTarget { upstream, route_ref, metrics, .. } = target;
        let proto = self.http_connection.visitor().proto;
        let mut record = metrics.map(|edge| RequestRecord::begin(edge, proto));
        self.status = 0;
        let end = self.send_upstream(request, &upstream, &route_ref).await;
        match (&mut record, &end) {
            // The full path counts it.
            (Some(record), ExchangeEnd::NotStarted(_)) => record.discard(),
            (Some(record), _) => record.set_status(self.status),
            (None, _) => {}
        }
        end
    }

    /// Sends a request to its target and relays the response.
    async fn send_upstream(
        &mut self,
        request: &FastPathRequest,
        upstream: &Upstream,
        route_ref: &RouteRef,
    ) -> ExchangeEnd {
        let beginning = self.buffer.get(request.length..).unwrap_or_default();
        // What is broken from its beginning is answered by the full path.
        let Ok(body) = RequestBodyCopy::starting_with(request.body.clone(), beginning) else {
            return ExchangeEnd::NotStarted(None);
        };
        (self.body, self.unread) = (body, request.length);
        if self.answer.capacity() == 0 {
            self.answer = spare_buffers::take_buffer();
        }
        let is_received = self.body.is_received();
        self.stream.set_expected(if is_received { Expects::Nothing } else { Expects::Body });
        let mut connection = match self.begin_exchange(request, upstream, route_ref).await {
            Ok(connection) => connection,
            Err(ended) => return ended,
        };
        let is_new = !connection.is_used();
        let reading = self.read_response_head(request, &mut connection, upstream);
        let head = match upstream.await_response(is_new, reading).await {
            Ok(head) => head,
            Err(error) => {
                let is_used = connection.is_used();
                drop(connection);
                return self.handle_head_failure(error, request, is_used, upstream).await;
            }
        };
        match head.notice {
            Some(NodeNotice::Closed) => return ExchangeEnd::Failed,
            Some(NodeNotice::NoAgent) if self.may_move(request, upstream) => {
                let key = upstream.target.key().to_owned();
                return ExchangeEnd::NotStarted(Some(NodeFailure { key, has_no_agent: true }));
            }
            _ => {}
        }
        let mut body = head.body;
        if self.relay_response(&mut body, &mut connection, head.has_stall_limit).await.is_err() {
            return ExchangeEnd::Failed;
        }
        let persists = head.keeps_alive && !body.has_padding() && self.body.is_complete();
        self.return_connection(connection, persists, upstream);
        ExchangeEnd::Completed
    }

    /// Keeps a connection for the next request, if it may carry one.
    fn return_connection(
        &self,
        mut connection: Http1Connection,
        persists: bool,
        upstream: &Upstream,
    ) {
        let state = IdleState::after_response(persists, &self.answer);
        if upstream.pool.permits_reuse(state) && upstream.target.may_idle() {
            connection.mark_idle();
            upstream.pool.http1.put(connection);
        }
    }

    /// Sends the head of a request, and what has come of its body, on a connection that takes it.
    async fn begin_exchange(
        &mut self,
        request: &FastPathRequest,
        upstream: &Upstream,
        route_ref: &RouteRef,
    ) -> Result<Http1Connection, ExchangeEnd> {
        let visitor = self.http_connection.visitor();
        let identity = upstream.connection_identity(visitor, route_ref);
        self.out.clear();
        self.answer.clear();
        // Another node knows who asks, and tells the target itself.
        let origin = (!upstream.target.is_node()).then(|| self.http_connection.origin());
        let is_changed = !request.changes.is_empty();
        let rules_header = is_changed.then(|| upstream.target.rules_header()).flatten();
        // An endpoint has its own policy, and an edge that of whoever made it.
        let rules_header = rules_header.map(|name| (name, route_ref.edge_id.is_empty()));
        request::rewrite_request_head(&self.buffer, request, (origin, rules_header), &mut self.out);
        let sent = self.body.pending_bytes().min(MAX_COALESCED_BYTES);
        let beginning = self.buffer.get(request.length..request.length + sent);
        self.out.extend_from_slice(beginning.unwrap_or_default());
        while let Some(mut connection) = upstream.pool.http1.take_matching(identity.as_ref()) {
            if self.write_head(&mut connection, sent).await {
                return Ok(connection);
            }
        }
        let limit = self.http_connection.dial_timeout();
        let io = match upstream.dial_target(visitor, route_ref, limit).await {
            Ok(io) => io,
            Err(DialError::Unreachable(_) | DialError::Reset) if !upstream.target.is_node() => {
                return Err(self.respond_with_error(request, error_response::UNREACHABLE).await);
            }
            // Others may have to make room, or the backend is not what it was.
            Err(_) => return Err(ExchangeEnd::NotStarted(None)),
        };
        let mut connection = Http1Connection::new(io, upstream.response_grammar(), identity);
        let is_begun = self.write_head(&mut connection, sent).await;
        if is_begun { Ok(connection) } else { Err(ExchangeEnd::NotStarted(None)) }
    }

    /// Writes what lies in `out`, with so much of the body; false when nothing of it was sent.
    async fn write_head(&mut self, connection: &mut Http1Connection, sent: usize) -> bool {
        self.timeout.reset_deadline();
        let Ok(written @ 1..) = connection.io.write(&self.out).await else { return false };
        let rest = self.out.get(written..).unwrap_or_default();
        if connection.io.write_all(rest).await.is_ok() {
            let flushed = connection.io.flush().await;
            ignore(flushed, "how the connection broke shows when the response is read");
        }
        if !self.body.is_complete() {
            self.buffer.advance(std::mem::take(&mut self.unread) + sent);
            self.body.mark_sent(sent);
        }
        true
    }

    /// What becomes of a request whose answer has no head.
    async fn handle_head_failure(
        &mut self,
        error: AnswerError,
        request: &FastPathRequest,
        is_used: bool,
        upstream: &Upstream,
    ) -> ExchangeEnd {
        let is_unreached = !is_used && upstream.target.is_agent();
        let may_be_elsewhere = is_unreached || upstream.target.is_node();
        match error {
            // The upstream closed a connection that it had kept, just as it was used, or the session of an
            // agent has ended, which may have another, or a node has, and others may have its agents.
            AnswerError::Silent if (is_used || may_be_elsewhere) && request.is_repeatable() => {
                let key = || upstream.target.key().to_owned();
                let failure = upstream
                    .target
                    .is_node()
                    .then(|| NodeFailure { key: key(), has_no_agent: false });
                ExchangeEnd::NotStarted(failure)
            }
            AnswerError::Silent if is_unreached => {
                self.respond_with_error(request, error_response::UNREACHABLE).await
            }
            AnswerError::Silent | AnswerError::Malformed => {
                self.respond_with_error(request, error_response::BROKEN).await
            }
            AnswerError::Timeout => self.respond_with_error(request, error_response::LATE).await,
            AnswerError::Request(RequestBodyError::Malformed) => {
                self.respond_with_error(request, error_response::BAD_REQUEST).await
            }
            AnswerError::Request(RequestBodyError::VisitorLeft) => ExchangeEnd::Failed,
        }
    }

    /// Whether a request that a node has no agent for may be served elsewhere.
    fn may_move(&self, request: &FastPathRequest, node: &Upstream) -> bool {
        let host = self.buffer.get(request.host.clone()).and_then(|it| str::from_utf8(it).ok());
        request.is_repeatable()
            && host
                .is_some_and(|host| self.http_connection.has_another_place(host, node.target.key()))
    }

    fn closes_connection(&self, request: &FastPathRequest) -> bool {
        request.closes || self.closes_behind || self.is_closing()
    }

    fn response_options(
        &self,
        request: &FastPathRequest,
        source: ResponseSource,
    ) -> ResponseOptions<'l> {
        ResponseOptions {
            to_head: request.is_head,
            closes: self.closes_connection(request) || self.body.is_refused(),
            code_prefix: self.http_connection.code_prefix(),
            source,
        }
    }

    /// Answers for the upstream; the connection closes where the rest of the request is not there.
    async fn respond_with_error(
        &mut self,
        request: &FastPathRequest,
        error: ErrorResponse,
    ) -> ExchangeEnd {
        self.buffer.advance(std::mem::take(&mut self.unread));
        self.body.discard_rest(&mut self.buffer);
        self.out.clear();
        self.status = error.status;
        self.http_connection.count_rejection(RequestPhase::SendUpstream);
        response::write_error(
            error,
            self.response_options(request, ResponseSource::Server),
            &mut self.out,
        );
        let sent = self.stream.write_all(&self.out).await;
        match sent.and(self.stream.flush().await) {
            Ok(()) => ExchangeEnd::Completed,
            Err(_) => ExchangeEnd::Failed,
        }
    }

    /// Reads the head of the final answer, which lies in `out` then; the rest of the request goes on
    /// meanwhile.
    async fn read_response_head(
        &mut self,
        request: &FastPathRequest,
        connection: &mut Http1Connection,
        upstream: &Upstream,
    ) -> Result<FastPathResponse, AnswerError> {
        self.out.clear();
        let source = ResponseSource::from_target(upstream.target.as_ref());
        // A request that asks for another protocol does not come here.
        let expected = ExpectedResponse { to_head: request.is_head, may_switch: false };
        let mut reader = ResponseHeadReader::new(connection.grammar, expected);
        loop {
            let options = self.response_options(request, source);
            let (answer, out) = (&mut self.answer, &mut self.out);
            let progress = response::rewrite_response_head(&mut reader, answer, options, out);
            match progress.map_err(|_| AnswerError::Malformed)? {
                HeadProgress::Incomplete => self.read_more_of_head(connection, &reader).await?,
                HeadProgress::Interim { length, .. } => {
                    let head = self.answer.get(..length).unwrap_or_default();
                    if upstream.target.is_agent() && head == HOLD_NOTICE {
                        self.stream.activity().set_held(true);
                    }
                    self.answer.advance(length);
                }
                HeadProgress::Final(head) => {
                    self.answer.advance(head.length);
                    self.status = head.status;
                    return Ok(head);
                }
            }
        }
    }

    async fn read_more_of_head(
        &mut self,
        connection: &mut Http1Connection,
        reader: &ResponseHeadReader,
    ) -> Result<(), AnswerError> {
        match self.read_event(connection, true).await {
            Ok(ReadEvent::Response(1..)) => Ok(()),
            Ok(ReadEvent::Request(error)) => Err(AnswerError::Request(error)),
            Ok(ReadEvent::Timeout) => Err(AnswerError::Timeout),
            _ if reader.is_unbegun(&self.answer) => Err(AnswerError::Silent),
            _ => Err(AnswerError::Malformed),
        }
    }

    /// Waits for more of the answer; meanwhile the rest of the request goes on, and it is seen that
    /// the visitor leaves.
    async fn read_event(
        &mut self,
        connection: &mut Http1Connection,
        limited: bool,
    ) -> io::Result<ReadEvent> {
        let Self { stream, buffer, body, answer, timeout, .. } = self;
        answer.reserve(MIN_READ_BYTES);
        poll_fn(|cx| {
            let sent = body.poll(cx, *stream, buffer, &mut connection.io);
            if body.is_received() {
                stream.set_expected(Expects::Nothing);
            }
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(Ok(ReadEvent::Request(error)));
            }
            if let Poll::Ready(read) = pin!(connection.io.read_buf(answer)).poll(cx) {
                return Poll::Ready(read.map(ReadEvent::Response));
            }
            if sent.is_ready() && stream.has_left(cx, buffer, !limited) {
                return Poll::Ready(Ok(ReadEvent::Request(RequestBodyError::VisitorLeft)));
            }
            if limited && timeout.poll(cx).is_ready() {
                return Poll::Ready(Ok(ReadEvent::Timeout));
            }
            Poll::Pending
        })
        .await
    }

    /// Passes the answer on: its head, which lies in `out`, and its body.
    async fn relay_response(
        &mut self,
        body: &mut Body,
        connection: &mut Http1Connection,
        has_stall_limit: bool,
    ) -> io::Result<()> {
        let chunks = *body == Body::UntilClose;
        loop {
            let taken = body.take_clean(&mut self.answer, 0, |_| {}, |_| {});
            let taken = taken.map_err(|_| io::ErrorKind::InvalidData)?;
            let framed = chunks && taken > 0;
            if framed {
                write_chunk_size(taken, &mut self.out);
            }
            self.send_piece(taken, if framed { LINE_END } else { b"" }, connection).await?;
            if body.is_done() {
                return Ok(());
            }
            if taken >= MIN_READ_BYTES {
                self.answer.reserve(BULK_READ_BYTES);
            }
            self.stream.activity().upstream_wait().set_waiting(has_stall_limit);
            let event = self.read_event(connection, false).await;
            self.stream.activity().upstream_wait().set_waiting(false);
            match event? {
                ReadEvent::Response(1..) => {}
                ReadEvent::Response(0) if chunks => {
                    return self.send_piece(0, LAST_CHUNK, connection).await;
                }
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Sends what lies in `out`, so much of the answer, and an ending.
    async fn send_piece(
        &mut self,
        taken: usize,
        ending: &[u8],
        connection: &mut Http1Connection,
    ) -> io::Result<()> {
        let Self { stream, buffer, body, answer, out, .. } = self;
        let piece = answer.get(..taken).unwrap_or_default();
        let mut pieces = [out.as_slice(), piece, ending];
        if !(out.is_empty() && ending.is_empty()) && taken <= MAX_COALESCED_BYTES {
            out.extend_from_slice(piece);
            out.extend_from_slice(ending);
            pieces = [out.as_slice(), b"", b""];
        }
        for mut piece in pieces {
            poll_fn(|cx| {
                let written = poll_write_all(cx, stream, &mut piece);
                // Who takes no answer may wait for the rest of its request to be taken.
                if written.is_pending()
                    && let Poll::Ready(Err(_)) = body.poll(cx, *stream, buffer, &mut connection.io)
                {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                written
            })
            .await?;
        }
        self.out.clear();
        self.answer.advance(taken);
        self.stream.flush().await
    }

    /// Gives large buffers back, so that a connection that waits holds little.
    pub fn shrink_buffers(&mut self) {
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_BUFFER_BYTES {
            self.buffer = BytesMut::new();
        }
        if self.answer.is_empty() {
            spare_buffers::give_back(std::mem::take(&mut self.answer));
        }
        self.out.shrink_to(MAX_IDLE_BUFFER_BYTES);
    }
}

/// Writes all of some bytes to the visitor; what was written is cut off in front.
pub fn poll_write_all(
    cx: &mut Context<'_>,
    stream: &mut VisitorStream,
    bytes: &mut &[u8],
) -> Poll<io::Result<()>> {
    while !bytes.is_empty() {
        match ready!(Pin::new(&mut *stream).poll_write(cx, bytes))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => *bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    Poll::Ready(Ok(()))
}
