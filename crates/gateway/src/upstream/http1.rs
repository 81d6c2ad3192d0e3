//! One connection to an upstream, spoken to with HTTP/1.1.
//!
//! The connection is polled by the request that uses it and by nobody else, which saves a task and
//! its wake-ups: by the exchange until the head of the answer is there, by the body of the answer after
//! that.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::io::{AsyncReadExt, AsyncWrite};

use ginnel_base::logging::ignore;
use ginnel_http1::reuse::{IdleState, idle_state};
use ginnel_http1::{
    Body, ExpectedResponse, HOLD_NOTICE, HeadProgress, HeadWriter, ReadRoom, ResponseGrammar,
    ResponseHead, ResponseHeadReader, request_target, write_chunk,
};

use crate::Io;
use crate::message::body::BodyError;
use crate::message::body_decoder::Http1BodyReader;
use crate::message::connection_activity::ConnectionActivity;
use crate::message::field_names::{
    FieldNames, FieldWriter, ReasonPhrase, headers_with_names, write_announced,
};
use crate::message::request_body::{ContinueSignal, ReadFrame, RequestBody};
use crate::message::response_body::UpstreamBody;
use crate::message::visitor::{RouteRef, Visitor};
use crate::upstream::pool::{PooledConnection, UpstreamPool};

/// What is shorter is copied, to be sent together with what is before it.
const MAX_COALESCED_BYTES: usize = 16 << 10;

/// One connection to an upstream.
pub struct Http1Connection {
    pub io: Io,
    /// What was read and not used yet.
    buffer: BytesMut,
    room: ReadRoom,
    /// The request on its way; none before the first, and where a request goes by another way.
    upload: Option<Box<RequestUpload>>,
    /// What follows the head of the answer.
    answer: Body,
    keeps_alive: bool,
    idle_since: Option<Instant>,
    /// What the connection has named at its beginning; none when it named nobody.
    identity: Option<ConnectionIdentity>,
    pub grammar: ResponseGrammar,
}

/// Whose requests a connection carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionIdentity {
    /// The address of the visitor.
    pub address: IpAddr,
    /// What led the visitor here.
    pub route_ref: RouteRef,
    /// The visitor's connection; none where that makes no difference.
    pub visitor: Option<Box<Visitor>>,
}

/// Why an exchange failed.
pub enum ExchangeError {
    /// Nothing of the request was sent.
    Unsent(Box<Request<RequestBody>>),
    /// The upstream closed without a byte.
    Silent,
    /// The upstream closed early, or sent something that is no HTTP.
    Broken,
}

/// The answer is not complete.
#[derive(Debug, thiserror::Error)]
pub enum IncompleteResponse {
    /// The upstream closed the connection, or it broke.
    #[error("the upstream closed the connection within its response")]
    Closed,
    /// Its framing is broken.
    #[error("the body of the response is malformed")]
    Malformed,
}

impl Http1Connection {
    /// A connection that has carried nothing.
    pub fn new(io: Io, grammar: ResponseGrammar, identity: Option<ConnectionIdentity>) -> Self {
        Self {
            io,
            buffer: BytesMut::new(),
            room: ReadRoom::NEW,
            upload: None,
            answer: Body::NONE,
            keeps_alive: true,
            idle_since: None,
            identity,
            grammar,
        }
    }

    /// Whether it has carried a request before.
    pub fn is_used(&self) -> bool {
        self.idle_since.is_some()
    }

    /// Marks the beginning of an idle time.
    pub fn mark_idle(&mut self) {
        self.upload = None;
        self.idle_since = Some(Instant::now());
        ReadRoom::release(&mut self.buffer);
    }

    /// Sends a request, which may ask for another protocol, and waits for the head of the answer, whose
    /// body follows on the connection.
    pub async fn send_request(
        &mut self,
        request: Request<RequestBody>,
        may_switch: bool,
        activity: &ConnectionActivity,
    ) -> Result<Response<()>, ExchangeError> {
        let expected = ExpectedResponse { to_head: request.method() == Method::HEAD, may_switch };
        let signal = request.extensions().get::<Arc<ContinueSignal>>().cloned();
        let upload = self.upload.insert(Box::new(RequestUpload::from_request(request)));
        let first = poll_fn(|cx| upload.poll_first(cx, &mut self.io)).await;
        if let Err(error) = first {
            let request = self.upload.take().and_then(|upload| upload.into_request());
            return Err(match request.filter(|_| error.kind() != io::ErrorKind::InvalidData) {
                Some(request) => ExchangeError::Unsent(Box::new(request)),
                None => ExchangeError::Broken,
            });
        }
        self.read_answer(expected, signal.as_deref(), activity).await
    }

    /// Waits for the head of the final answer; the rest of the request goes on meanwhile.
    async fn read_answer(
        &mut self,
        expected: ExpectedResponse,
        signal: Option<&ContinueSignal>,
        activity: &ConnectionActivity,
    ) -> Result<Response<()>, ExchangeError> {
        let mut reader = ResponseHeadReader::new(self.grammar, expected);
        loop {
            let progress = reader.read_next(&mut self.buffer, response_from_head);
            match progress.map_err(|_| ExchangeError::Broken)? {
                HeadProgress::Final(start) => {
                    let start = start.ok_or(ExchangeError::Broken)?;
                    self.buffer.advance(start.length);
                    (self.answer, self.keeps_alive) = (start.body, start.keeps_alive);
                    return Ok(start.response);
                }
                HeadProgress::Interim { status, length } => {
                    let head = self.buffer.split_to(length);
                    if self.grammar == ResponseGrammar::Strict && head == HOLD_NOTICE {
                        activity.set_held(true);
                    }
                    if let Some(signal) = signal.filter(|_| status == StatusCode::CONTINUE.as_u16())
                    {
                        signal.allow_body();
                    }
                    continue;
                }
                HeadProgress::Incomplete => {}
            }
            match poll_fn(|cx| self.poll_more(cx)).await {
                Ok(Some(1..)) => {}
                Ok(_) if reader.is_unbegun(&self.buffer) => return Err(ExchangeError::Silent),
                _ => return Err(ExchangeError::Broken),
            }
        }
    }

    /// Reads more of the answer, none where the connection broke; the rest of the request goes on
    /// meanwhile.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, BodyError>> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(Err(error)) = upload.poll(cx, &mut self.io)
        {
            return Poll::Ready(Err(error));
        }
        self.room.reserve(&mut self.buffer);
        let read = ready!(pin!(self.io.read_buf(&mut self.buffer)).poll(cx)).ok();
        self.room.note_read(read.unwrap_or_default());
        Poll::Ready(Ok(read))
    }

    /// The bytes under the connection, after the upstream has agreed to speak something else, and
    /// what it has said of that already.
    pub fn into_raw(self) -> (Io, Bytes) {
        (self.io, self.buffer.freeze())
    }

    /// Returns true if a body of this length is in the buffer, and the request was sent.
    fn has_whole(&self, length: usize) -> bool {
        self.buffer.len() >= length
            && self.upload.as_ref().is_none_or(|upload| upload.is_complete())
    }

    /// What it is like at the end of an answer.
    fn end_state(&self) -> IdleState {
        let is_sent = self.upload.as_ref().is_none_or(|upload| upload.is_complete());
        IdleState::after_response(self.keeps_alive && is_sent, &self.buffer)
    }
}

impl PooledConnection for Http1Connection {
    fn identity(&self) -> Option<&ConnectionIdentity> {
        self.identity.as_ref()
    }

    fn idle_time(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    fn idle_state(&mut self) -> IdleState {
        idle_state(Pin::new(&mut self.io))
    }
}

/// The head of an answer, read.
struct UpstreamAnswer {
    length: usize,
    response: Response<()>,
    body: Body,
    keeps_alive: bool,
}

/// The answer as a message; none where it cannot be one.
fn response_from_head(head: &ResponseHead<'_, '_>) -> Option<UpstreamAnswer> {
    let (headers, names) = headers_with_names(head.fields)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    if response.status().canonical_reason() != Some(head.reason) {
        let reason = Bytes::copy_from_slice(head.reason.as_bytes());
        response.extensions_mut().insert(ReasonPhrase(reason));
    }
    response.extensions_mut().insert(names);
    *response.headers_mut() = headers;
    Some(UpstreamAnswer {
        length: head.bytes.len(),
        response,
        body: head.body.clone(),
        keeps_alive: head.keeps_alive,
    })
}

/// A request on its way.
#[derive(Default)]
struct RequestUpload {
    /// The request, as long as nothing of it was sent.
    request: Option<Request<RequestBody>>,
    body: RequestBody,
    framing: UploadFraming,
    /// What is to be written next, and how much of it was.
    out: Vec<u8>,
    written: usize,
    /// A piece that is written behind that, because it is too large to be copied.
    piece: Bytes,
    /// The frame behind the data, if it was read with the beginning.
    early: Option<ReadFrame>,
    /// The headers that announce what comes behind the body.
    announced: HeaderMap,
    state: UploadState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UploadFraming {
    /// So many more bytes.
    Length(u64),
    Chunked,
    /// No body.
    #[default]
    Empty,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UploadState {
    /// There may be more of the body.
    Running,
    /// All of it was asked for, and is to be written.
    Ending,
    #[default]
    Complete,
    /// The upstream takes no more.
    Refused,
}

/// The body is not as long as the request says.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request has another length than announced")]
struct WrongBodyLength;

impl RequestUpload {
    /// A request of which nothing was sent.
    fn from_request(request: Request<RequestBody>) -> Self {
        let (mut out, framing) = (Vec::with_capacity(1024), upload_framing(&request));
        write_head(&request, framing, &mut out);
        let (request, state) = (Some(request), UploadState::Running);
        Self { request, framing, out, state, ..Self::default() }
    }

    /// The request, if nothing of it was sent.
    fn into_request(mut self) -> Option<Request<RequestBody>> {
        let mut request = self.request.take()?;
        *request.body_mut() = std::mem::take(&mut self.body);
        if !self.piece.is_empty() {
            request.body_mut().put_back(Ok(Frame::data(self.piece)));
        } else if let Some(early) = self.early {
            request.body_mut().put_back(early);
        }
        Some(request)
    }

    fn is_complete(&self) -> bool {
        self.state == UploadState::Complete
    }

    /// Sends the beginning of a request, with what there is of its body.
    ///
    /// # Errors
    /// When nothing of it was sent.
    fn poll_first(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<io::Result<()>> {
        let Some(request) = &mut self.request else { return Poll::Ready(Ok(())) };
        if self.framing != UploadFraming::Empty
            && self.piece.is_empty()
            && self.early.is_none()
            && let Poll::Ready(Some(frame)) = Pin::new(request.body_mut()).poll_frame(cx)
        {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => self.piece = data,
                Ok(Err(trailers)) => self.early = Some(Ok(trailers)),
                Err(error) => self.early = Some(Err(error)),
            }
        }
        let head = self.out.len();
        if !self.piece.is_empty() && self.piece.len() <= MAX_COALESCED_BYTES {
            let piece = self.piece.clone();
            if put_piece(&mut self.framing, &piece, &mut self.out).is_err() {
                self.out.truncate(head);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
        let written = Pin::new(&mut *io).poll_write(cx, &self.out);
        match written {
            Poll::Ready(Ok(written @ 1..)) => {
                if self.out.len() > head {
                    self.piece = Bytes::new();
                }
                self.written = written;
            }
            _ => {
                // It is put together anew; its length is counted anew as well.
                if self.out.len() > head
                    && let UploadFraming::Length(left) = &mut self.framing
                {
                    *left += self.piece.len() as u64;
                }
                self.out.truncate(head);
                let written = ready!(written);
                return Poll::Ready(Err(written.err().unwrap_or(io::ErrorKind::WriteZero.into())));
            }
        }
        if let Some(request) = self.request.take() {
            let (parts, body) = request.into_parts();
            self.body = body;
            if parts.headers.contains_key(TRAILER) {
                self.announced = parts.headers;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what there is; ready when there is nothing more to do.
    ///
    /// # Errors
    /// When the body cannot be read.
    fn poll(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<Result<(), BodyError>> {
        while matches!(self.state, UploadState::Running | UploadState::Ending) {
            if ready!(self.poll_write(cx, io)).is_err() {
                self.state = UploadState::Refused;
            } else if self.state == UploadState::Ending {
                self.state = UploadState::Complete;
            } else {
                ready!(self.poll_body(cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes more of the body.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if !self.piece.is_empty() {
            return Poll::Ready(self.put_large());
        }
        if self.framing == UploadFraming::Empty {
            self.state = UploadState::Ending;
            return Poll::Ready(Ok(()));
        }
        let frame = match self.early.take() {
            Some(early) => Some(early),
            None => ready!(Pin::new(&mut self.body).poll_frame(cx)),
        };
        let trailers = match frame.transpose()?.map(Frame::into_data) {
            Some(Ok(data)) => {
                self.piece = data;
                return Poll::Ready(self.put_large());
            }
            Some(Err(frame)) => frame.into_trailers().unwrap_or_default(),
            None => HeaderMap::new(),
        };
        self.state = UploadState::Ending;
        match self.framing {
            UploadFraming::Chunked => write_announced(&self.announced, &trailers, &mut self.out),
            UploadFraming::Length(1..) => return Poll::Ready(Err(WrongBodyLength.into())),
            UploadFraming::Length(0) | UploadFraming::Empty => {}
        }
        Poll::Ready(Ok(()))
    }

    fn put_large(&mut self) -> Result<(), BodyError> {
        let piece = std::mem::take(&mut self.piece);
        put_piece(&mut self.framing, &piece, &mut self.out)?;
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, io: &mut Io) -> Poll<io::Result<()>> {
        let mut io = Pin::new(io);
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(io.as_mut().poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.out.clear();
        self.written = 0;
        io.poll_flush(cx)
    }
}

/// Writes a piece of a body.
fn put_piece(
    framing: &mut UploadFraming,
    piece: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), WrongBodyLength> {
    match framing {
        UploadFraming::Length(left) => {
            *left = left.checked_sub(piece.len() as u64).ok_or(WrongBodyLength)?;
            out.extend_from_slice(piece);
        }
        UploadFraming::Chunked => write_chunk(piece, out),
        UploadFraming::Empty => {}
    }
    Ok(())
}

/// How the body of a request is framed.
fn upload_framing(request: &Request<RequestBody>) -> UploadFraming {
    if request.body().is_end_stream() {
        return UploadFraming::Empty;
    }
    let exact = request.body().size_hint().exact();
    let length = request.headers().get(CONTENT_LENGTH).and_then(length_of).or(exact);
    length.map_or(UploadFraming::Chunked, UploadFraming::Length)
}

fn length_of(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn write_head(request: &Request<RequestBody>, framing: UploadFraming, out: &mut Vec<u8>) {
    let target = request_target(request.uri(), request.extensions());
    let mut head = HeadWriter::begin_request(request.method().as_str(), &[target], out);
    let mut writer = FieldWriter::new(request.extensions().get::<FieldNames>());
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != TRANSFER_ENCODING) {
        writer.write_field(name, value, &mut head);
    }
    match framing {
        UploadFraming::Length(length) if !request.headers().contains_key(CONTENT_LENGTH) => {
            head.display_field(CONTENT_LENGTH, length);
        }
        UploadFraming::Chunked => {
            head.field(TRANSFER_ENCODING, "chunked");
        }
        UploadFraming::Length(_) | UploadFraming::Empty => {}
    }
    head.end();
}

/// The body of an answer, with the connection that it comes from.
pub struct Http1Body {
    decoder: Http1BodyReader,
    /// Goes back to the pool at the end of the body.
    link: Option<Http1Connection>,
    pool: Option<Arc<UpstreamPool>>,
}

impl Http1Body {
    /// The rest of an answer; the connection goes to `pool` afterwards.
    pub fn new(mut link: Http1Connection, pool: Option<Arc<UpstreamPool>>) -> Self {
        let answer = std::mem::replace(&mut link.answer, Body::NONE);
        let mut relay = Self { decoder: Http1BodyReader::new(answer), link: Some(link), pool };
        relay.finish();
        relay
    }

    /// Takes a body of a known length that has arrived as a whole with its request sent, and gives the
    /// connection back.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.decoder.size_hint().exact()?).ok()?;
        let Some(link) = &mut self.link else { return (length == 0).then(Bytes::new) };
        if !link.has_whole(length) {
            return None;
        }
        let whole = self.decoder.decode(&mut link.buffer).ok()?;
        self.finish();
        Some(whole)
    }

    /// Returns true if the end of the connection is the end of the body.
    pub fn is_until_close(&self) -> bool {
        self.decoder.is_until_close()
    }

    /// Gives the connection back at the end of the body.
    fn finish(&mut self) {
        if !self.decoder.is_done() {
            return;
        }
        let Some(mut link) = self.link.take() else { return };
        link.keeps_alive &= !self.decoder.has_padding();
        // What was asked for last may only have to be written.
        let unwoken = &mut Context::from_waker(Waker::noop());
        if let Some(upload) = &mut link.upload {
            let sent = upload.poll(unwoken, &mut link.io);
            ignore(sent, "whether it is complete is asked next");
        }
        if let Some(pool) = self.pool.take()
            && pool.permits_reuse(link.end_state())
        {
            link.mark_idle();
            pool.http1.put(link);
        }
    }
}

impl UpstreamBody for Http1Body {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Some(link) = &mut self.link else {
                return Poll::Ready(self.decoder.take_trailers().map(Ok));
            };
            if !link.buffer.is_empty() {
                let Ok(data) = self.decoder.decode(&mut link.buffer) else {
                    return Poll::Ready(Some(Err(IncompleteResponse::Malformed.into())));
                };
                self.finish();
                if !data.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                continue;
            }
            match ready!(link.poll_more(cx)) {
                Ok(Some(1..)) => {}
                Ok(Some(0)) if self.decoder.is_until_close() => {
                    self.link = None;
                    return Poll::Ready(None);
                }
                Ok(_) => return Poll::Ready(Some(Err(IncompleteResponse::Closed.into()))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.link.is_none() && !self.decoder.has_trailers()
    }

    fn size_hint(&self) -> SizeHint {
        self.decoder.size_hint()
    }
}
