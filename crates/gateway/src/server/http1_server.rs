//! A visitor's connection on which HTTP/1.1 is spoken: one request after the other.
//!
//! A head is read once, whatever way its request goes. A request that is only to be carried takes the
//! fast path; each other one becomes a message for the same handler that answers HTTP/2.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf, Bytes};
use http::header::{EXPECT, TE, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use ginnel_base::logging::ignore;
use ginnel_http1::{
    self as http1, Body, ConnectionOptions, Expects, HeadError, HeadLimits, RequestHead, has_token,
    may_end_head, read_target,
};

use crate::message::body_feed::BodyFeed;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::field_names::headers_with_names;
use crate::message::request_body::RequestBody;
use crate::message::response_body::ResponseBody;
use crate::message::upgrade::{UpgradeSender, VisitorUpgrade};
use crate::message::visitor_stream::VisitorStream;
use crate::request_phase::RequestPhase;
use crate::server::connection::{ConnectionClosed, HttpConnection};
use crate::server::fast_path::{
    Closing, ExchangeEnd, FastPathConnection, FastPathRequest, FastPathTarget, RequestRouting,
    poll_write_all,
};
use crate::server::response_writer::{ResponseRules, ResponseWriter};

/// How much is read at once at least.
const MIN_READ_BYTES: usize = 2 << 10;
/// What is shorter is sent together with what is before it.
const MAX_COALESCED_BYTES: usize = 16 << 10;

/// How serving a connection ended.
pub enum Http1Exit {
    /// It is over, and everybody knows.
    Finished,
    /// It was cut off, and that is how it shall look.
    Aborted,
    /// It carries something other than HTTP now.
    Upgraded(UpgradeSender),
}

/// A visitor's connection on which HTTP/1.1 is spoken.
pub struct Http1Server<'l> {
    http_connection: &'l Arc<HttpConnection>,
    /// The connection itself, as the fast path has it.
    line: FastPathConnection<'l, HttpConnection>,
    /// How large heads may be.
    limits: HeadLimits,
}

/// A request, and where it goes.
enum NextRequest {
    /// It is only carried.
    Fast(FastPathRequest, FastPathTarget),
    /// The handler sees it.
    Full(Box<FullRequest>),
}

/// A request for the handler.
struct FullRequest {
    request: Request<()>,
    /// How many bytes its head has.
    length: usize,
    body: Body,
    rules: ResponseRules,
    /// Whether the visitor waits for a word before it sends the body.
    waits: bool,
    /// Whether it may become another protocol.
    upgrades: bool,
}

/// Why there is no other request.
enum NoRequest {
    /// The visitor has nothing more to ask.
    Ended,
    /// The connection broke.
    Broken,
    /// What came is not to be understood.
    Refused(ErrorResponse),
}

impl<'l> Http1Server<'l> {
    pub fn new(
        http_connection: &'l Arc<HttpConnection>,
        stream: &'l mut VisitorStream,
        closing: &'l Closing,
    ) -> Self {
        let line = FastPathConnection::new(http_connection.as_ref(), stream, closing);
        let limits = http_connection.head_limits();
        Self { http_connection, line, limits }
    }

    /// Serves requests for as long as there are some.
    pub async fn serve_requests(mut self) -> Http1Exit {
        loop {
            let next = match self.next_request().await {
                Ok(next) => next,
                Err(NoRequest::Ended) => return Http1Exit::Finished,
                Err(NoRequest::Broken) => return Http1Exit::Aborted,
                Err(NoRequest::Refused(error)) => return self.reject_request(error).await,
            };
            self.line.stream.begin_request();
            let end = match next {
                NextRequest::Fast(request, target) => self.serve_fast(request, target).await,
                NextRequest::Full(request) => Box::pin(self.serve_full(*request)).await,
            };
            match end {
                Ok(true) => self.line.shrink_buffers(),
                Ok(false) => return Http1Exit::Finished,
                Err(exit) => return exit,
            }
        }
    }

    /// Carries a request; true when another may follow.
    async fn serve_fast(
        &mut self,
        request: FastPathRequest,
        target: FastPathTarget,
    ) -> Result<bool, Http1Exit> {
        match self.line.exchange_with_upstream(&request, target).await {
            ExchangeEnd::Completed => Ok(self.line.complete_request(&request)),
            ExchangeEnd::Failed => Err(Http1Exit::Aborted),
            ExchangeEnd::NotStarted(failure) => {
                // Nothing of it was done, so that its head still lies there. It is read again, because to
                // keep what was read would cost every request that is carried.
                let full = http1::read_request_within(self.limits, &self.line.buffer, full_request);
                match full.ok().flatten() {
                    Some(Ok(mut full)) => {
                        if let Some(failure) = failure {
                            full.request.extensions_mut().insert(failure);
                        }
                        Box::pin(self.serve_full(full)).await
                    }
                    _ => Err(self.reject_request(error_response::BAD_REQUEST).await),
                }
            }
        }
    }

    /// The next request.
    async fn next_request(&mut self) -> Result<NextRequest, NoRequest> {
        let (mut searched, mut has_skipped) = (0, false);
        loop {
            // One empty line before a request is no part of it (RFC 9112, section 2.2).
            if !has_skipped && self.line.buffer.starts_with(b"\r\n") {
                self.line.buffer.advance(2);
                has_skipped = true;
            }
            let is_cut = !has_skipped && self.line.buffer.as_ref() == b"\r";
            let bytes = self.line.buffer.as_ref();
            if !bytes.is_empty() && !is_cut && may_end_head(bytes, searched) {
                match self.read_head().map_err(NoRequest::Refused)? {
                    Some(next) => return Ok(next),
                    None => searched = self.line.buffer.len(),
                }
            } else if bytes.len() >= self.limits.bytes {
                return Err(NoRequest::Refused(error_response::HEAD_TOO_LARGE));
            }
            if self.line.stream.is_half_closed() {
                return Err(NoRequest::Ended);
            }
            let is_begun = !self.line.buffer.is_empty();
            self.line.stream.set_expected(if is_begun { Expects::Head } else { Expects::Nothing });
            self.line.buffer.reserve(MIN_READ_BYTES);
            match self.line.stream.read_buf(&mut self.line.buffer).await {
                Ok(1..) => {}
                Ok(0) => return Err(NoRequest::Ended),
                Err(err) => {
                    tracing::debug!(%err, "a visitor has left");
                    return Err(NoRequest::Broken);
                }
            }
        }
    }

    /// Reads the head that lies in the buffer, and finds out where its request goes; none while a part
    /// is missing.
    fn read_head(&self) -> Result<Option<NextRequest>, ErrorResponse> {
        let next = http1::read_request_within(self.limits, &self.line.buffer, |head| {
            if let Some((request, target)) = self.line.fast_request(head) {
                return Ok(NextRequest::Fast(request, target));
            }
            full_request(head).map(|full| NextRequest::Full(Box::new(full)))
        });
        next.map_err(head_rejection)?.transpose()
    }

    /// Says why nothing more is read.
    async fn reject_request(&mut self, error: ErrorResponse) -> Http1Exit {
        self.line.stream.set_expected(Expects::Head);
        self.http_connection.count_rejection(RequestPhase::ReadHead);
        let mut record = self.http_connection.unrouted_record();
        if let Some(record) = &mut record {
            record.set_status(error.status);
        }
        let response = error.into_response(self.http_connection.code_prefix());
        let rules = ResponseRules {
            to_head: false,
            is_http_1_1: true,
            takes_trailers: false,
            closes: true,
        };
        let (mut feed, _) = BodyFeed::new(Body::NONE, false);
        match self.write_response(response, rules, &mut feed).await {
            Ok(_) => Http1Exit::Finished,
            Err(_) => Http1Exit::Aborted,
        }
    }

    /// Has a request answered by the handler; true when another may follow.
    async fn serve_full(&mut self, full: FullRequest) -> Result<bool, Http1Exit> {
        // From here on a graceful stop waits for the answer.
        let _answering = self.http_connection.track_request();
        let FullRequest { request, length, body, mut rules, waits, upgrades } = full;
        self.line.buffer.advance(length);
        let (mut feed, fed) = BodyFeed::new(body, waits);
        feed.give_buffered(&mut self.line.buffer);
        let activity = self.http_connection.activity();
        let body = fed.map_or(RequestBody::Empty, |fed| RequestBody::from_http1(fed, activity));
        let mut request = request.map(|()| body);
        let is_received = feed.is_received();
        self.line.stream.set_expected(if is_received { Expects::Nothing } else { Expects::Body });
        let mut upgrade = None;
        if upgrades {
            let (sender, receiver) = VisitorUpgrade::new();
            upgrade = Some(sender);
            request.extensions_mut().insert(receiver);
        }
        let response = match self.handle_request(request, &mut feed).await {
            Some(Ok(response)) => response,
            Some(Err(ConnectionClosed)) | None => return Err(Http1Exit::Aborted),
        };
        rules.closes |= self.line.is_closing() || self.line.is_draining();
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let closes = match self.write_response(response, rules, &mut feed).await {
            Ok(closes) => closes,
            Err(_) => return Err(Http1Exit::Aborted),
        };
        if let (true, Some(upgrade)) = (switches, upgrade) {
            self.line.put_back_buffer();
            return Err(Http1Exit::Upgraded(upgrade));
        }
        let is_whole = feed.discard_rest(&mut self.line.buffer);
        if is_whole {
            self.line.stream.set_expected(Expects::Nothing);
        }
        Ok(is_whole && !closes && !self.line.is_closing())
    }

    /// Waits for the answer of the handler, while the body of the request is read for it; none when the
    /// visitor leaves.
    async fn handle_request(
        &mut self,
        request: Request<RequestBody>,
        feed: &mut BodyFeed,
    ) -> Option<Result<Response<ResponseBody>, ConnectionClosed>> {
        let FastPathConnection { stream, buffer, .. } = &mut self.line;
        let mut handling = pin!(self.http_connection.clone().answer(request));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = handling.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            ignore(feed.poll(cx, *stream, buffer), "how it ends shows to whoever takes the body");
            if !feed.is_received() {
                return Poll::Pending;
            }
            stream.set_expected(Expects::Nothing);
            if stream.has_left(cx, buffer, false) { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Writes a response; true when the connection closes behind it.
    async fn write_response(
        &mut self,
        response: Response<ResponseBody>,
        rules: ResponseRules,
        feed: &mut BodyFeed,
    ) -> io::Result<bool> {
        let (head, mut body) = response.into_parts();
        self.line.out.clear();
        let mut writer = ResponseWriter::begin(&head, &body.size_hint(), rules, &mut self.line.out);
        while !writer.is_bodiless() {
            match self.next_frame(&mut body, feed).await? {
                // Nothing more for now.
                None => self.send_piece(b"", feed).await?,
                Some(None) => {
                    writer
                        .finish_body(&HeaderMap::new(), &mut self.line.out)
                        .map_err(io::Error::other)?;
                    break;
                }
                Some(Some(frame)) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => self.write_piece(&mut writer, &piece, feed).await?,
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        writer
                            .finish_body(&trailers, &mut self.line.out)
                            .map_err(io::Error::other)?;
                        break;
                    }
                },
            }
        }
        drop(body);
        self.send_piece(b"", feed).await?;
        Ok(writer.closes)
    }

    async fn write_piece(
        &mut self,
        writer: &mut ResponseWriter,
        piece: &Bytes,
        feed: &mut BodyFeed,
    ) -> io::Result<()> {
        let out = &mut self.line.out;
        let ending = writer.frame_piece(piece, out).map_err(io::Error::other)?;
        if piece.len() > MAX_COALESCED_BYTES {
            self.send_piece(piece, feed).await?;
            self.line.out.extend_from_slice(ending);
            return Ok(());
        }
        out.extend_from_slice(piece);
        out.extend_from_slice(ending);
        if out.len() > MAX_COALESCED_BYTES { self.send_piece(b"", feed).await } else { Ok(()) }
    }

    /// The next frame of a body, or none at its end; none at all when there is something to be sent
    /// meanwhile. The body of the request is read on.
    async fn next_frame(
        &mut self,
        body: &mut ResponseBody,
        feed: &mut BodyFeed,
    ) -> io::Result<Option<Option<Frame<Bytes>>>> {
        let FastPathConnection { stream, buffer, out, .. } = &mut self.line;
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.transpose().map(Some).map_err(io::Error::other));
            }
            if !out.is_empty() {
                return Poll::Ready(Ok(None));
            }
            ignore(feed.poll(cx, *stream, buffer), "how it ends shows to whoever takes the body");
            if feed.is_received() && stream.has_left(cx, buffer, true) {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Pending
        })
        .await
    }

    /// Sends what lies in `out`, and a piece; the body of the request is read on meanwhile.
    async fn send_piece(&mut self, piece: &[u8], feed: &mut BodyFeed) -> io::Result<()> {
        let FastPathConnection { stream, buffer, out, .. } = &mut self.line;
        for mut bytes in [out.as_slice(), piece] {
            poll_fn(|cx| {
                let written = poll_write_all(cx, stream, &mut bytes);
                if written.is_pending() {
                    let polled = feed.poll(cx, *stream, buffer);
                    ignore(polled, "how it ends shows to whoever takes the body");
                }
                written
            })
            .await?;
        }
        out.clear();
        stream.flush().await
    }
}

/// What a visitor is answered whose head is refused.
fn head_rejection(error: HeadError) -> ErrorResponse {
    match error {
        HeadError::TooMany => error_response::TOO_MANY_FIELDS,
        HeadError::TooLong => error_response::HEAD_TOO_LARGE,
        _ => error_response::BAD_REQUEST,
    }
}

/// The request as a message.
fn full_request(head: &RequestHead<'_, '_>) -> Result<FullRequest, ErrorResponse> {
    let (headers, names) = headers_with_names(head.fields).ok_or(error_response::BAD_REQUEST)?;
    let mut request = Request::new(());
    *request.method_mut() =
        Method::from_bytes(head.method.as_bytes()).map_err(|_| error_response::BAD_REQUEST)?;
    let (uri, raw) = read_target(head.target).ok_or(error_response::BAD_REQUEST)?;
    *request.uri_mut() = uri;
    raw.map(|raw| request.extensions_mut().insert(raw));
    *request.version_mut() = if head.is_http_1_1 { Version::HTTP_11 } else { Version::HTTP_10 };
    request.extensions_mut().insert(names);
    let options = ConnectionOptions::from_headers(&headers);
    let rules = ResponseRules {
        to_head: request.method() == Method::HEAD,
        is_http_1_1: head.is_http_1_1,
        takes_trailers: has_token(&headers, TE, "trailers"),
        closes: !options.is_persistent(head.is_http_1_1),
    };
    let waits = head.is_http_1_1 && has_token(&headers, EXPECT, "100-continue");
    let upgrades = head.is_http_1_1 && headers.contains_key(UPGRADE) && options.upgrade;
    *request.headers_mut() = headers;
    let (length, body) = (head.bytes.len(), head.body.clone());
    Ok(FullRequest { request, length, body, rules, waits, upgrades })
}
