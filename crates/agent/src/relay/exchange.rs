//! One request and its answer.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use ginnel_http1::reuse::{self, IdleState, ReuseBan};
use ginnel_http1::{
    Body, ExpectedResponse, FramingError, HeadProgress, ReadRoom, ResponseGrammar,
    ResponseHeadReader,
};

use super::activity::UnframedAnswer;
use super::local_reset::LocalReset;
use super::quick_ack::ResponseWait;
use super::relayed_head::{RelayRequest, RelayResponse};
use super::{Activity, BoxReader, BoxWriter, HttpForwarder, LocalStream, rewrite};
use crate::capture::Recording;

/// How much of later requests is read while one is under way.
pub(super) const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;
/// How large the buffer of a connection is.
pub(super) const BUFFER_BYTES: usize = 8 * 1024;

/// The visitor went away, or the service closed the connection in its place.
pub(super) const VISITOR_LEFT: &str = "the visitor left before the response was complete";

/// A connection to the local service.
pub(super) struct LocalConnection {
    pub read: BoxReader,
    pub write: BoxWriter,
    /// Told when an answer is waited for.
    response_wait: ResponseWait,
    /// What was read and not used yet.
    pub buffer: BytesMut,
    /// Whether it has served a request before.
    pub reused: bool,
    ban: ReuseBan,
    /// Makes it end with a reset.
    pub reset: LocalReset,
}

/// One request on its way.
pub(super) struct RelayExchange<'a> {
    pub front: &'a HttpForwarder,
    pub head: &'a RelayRequest,
    pub recording: Option<&'a Recording>,
    pub read: &'a mut BoxReader,
    pub write: &'a mut BoxWriter,
    pub buffer: &'a mut BytesMut,
    pub activity: &'a Activity<'a>,
    /// Where the status of the response goes; 0 until it begins.
    pub status: &'a AtomicU16,
}

/// How an exchange ended well.
pub(super) enum RelayOutcome {
    /// With an answer: whether the visitor may ask again, and whether the local service gets that on
    /// the same connection.
    Complete { keep_alive: bool, reuse_local: bool },
    /// With a change of protocol.
    Upgraded,
}

/// How an exchange ended badly.
pub(super) enum RelayError {
    /// Before the visitor got anything of the final answer.
    Unanswered(String),
    /// Before that as well, because the framing of the request's body is broken.
    Malformed(FramingError),
    /// Afterwards, or because the visitor went away.
    Broken(String),
}

impl LocalConnection {
    pub fn new(connected: LocalStream) -> Self {
        let LocalStream { read, write, response_wait, ban, reset } = connected;
        let buffer = BytesMut::with_capacity(BUFFER_BYTES);
        Self { read, write, response_wait, buffer, reused: false, ban, reset }
    }

    /// Waits until the local service sends or closes without a request, or until idle connections to it are given up.
    pub async fn watch_idle(&mut self) {
        let read = tokio::select! {
            biased;
            read = self.read.read_buf(&mut self.buffer) => read,
            () = self.ban.wait_until_given_up() => return,
        };
        let state = match read {
            Ok(1..) => IdleState::Surplus,
            _ => IdleState::Closed,
        };
        self.ban.permits_reuse(state);
    }

    /// Whether another request may be sent; to be asked right before that.
    pub fn is_reusable(&mut self) -> bool {
        let state = reuse::idle_state(self.read.as_mut());
        self.ban.permits_reuse(state)
    }

    /// Marks the end of an answer; says whether another request may follow it. `persists` is false if
    /// one side closes the connection.
    fn finish_exchange(&mut self, persists: bool) -> bool {
        self.reused = true;
        self.ban.permits_reuse(IdleState::after_response(persists, &self.buffer))
    }
}

impl RelayExchange<'_> {
    fn send_failure(&self, unsent: SendError, is_whole: bool) -> RelayError {
        let is_answered = self.status.load(Ordering::Relaxed) > 0;
        let received = self.recording.map_or(0, Recording::request_length);
        unsent.into_relay_error(&self.head.body, received, is_whole, is_answered)
    }

    /// Sends the request with this head, and brings the answer.
    pub async fn run(
        self,
        bytes: &[u8],
        local: &mut LocalConnection,
    ) -> Result<RelayOutcome, RelayError> {
        let LocalConnection { read, write, buffer, response_wait, ban, reused, .. } = local;
        response_wait.begin();
        let sent = AtomicBool::new(false);
        let mut sending = RequestCopy {
            read: self.read,
            buffer: self.buffer,
            write,
            body: self.head.body.clone(),
            trailer: Vec::new(),
            recording: self.recording,
            sent: &sent,
        };
        let receiving = ResponseCopy {
            front: self.front,
            head: self.head,
            recording: self.recording,
            unanswered: (!*reused).then(|| ban.clone()),
            read,
            buffer,
            trailer: Vec::new(),
            write: self.write,
            status: self.status,
            activity: self.activity,
        };
        let ended = tokio::select! {
            biased;
            unsent = sending.run(bytes) => Err(unsent),
            answered = receiving.run() => Ok(answered),
        };
        let is_whole = sending.body.is_done();
        let answered = ended.unwrap_or_else(|unsent| Err(self.send_failure(unsent, is_whole)));
        if let Some(recording) = self.recording.filter(|_| answered.is_ok()) {
            recording.mark_complete();
        }
        response_wait.end();
        Ok(match answered? {
            ResponseEnd::Upgraded => RelayOutcome::Upgraded,
            ResponseEnd::Whole { keep_alive } => {
                let keep_alive = keep_alive && self.head.keep_alive && sent.load(Ordering::Relaxed);
                // The visitor's connection is as good as before, whatever the local service does.
                let reuse_local = local.finish_exchange(keep_alive);
                RelayOutcome::Complete { keep_alive, reuse_local }
            }
        })
    }
}

/// Why the rest of a request does not come.
enum SendError {
    /// The visitor went away.
    Gone,
    /// The framing of the body is broken.
    Malformed(FramingError),
}

impl SendError {
    /// What follows, when so much of the request came.
    fn into_relay_error(
        self,
        request: &Body,
        received: u64,
        is_whole: bool,
        is_answered: bool,
    ) -> RelayError {
        let place = describe_progress(request, received);
        match self {
            Self::Malformed(error) if !is_answered => RelayError::Malformed(error),
            Self::Malformed(_) => RelayError::Broken(format!(
                "the visitor sent a chunk that is malformed after {place}"
            )),
            Self::Gone if is_whole => RelayError::Broken(VISITOR_LEFT.to_owned()),
            Self::Gone => {
                RelayError::Broken(format!("the visitor left after {place} of the request"))
            }
        }
    }
}

/// The direction from the visitor to the local service.
struct RequestCopy<'a> {
    read: &'a mut BoxReader,
    buffer: &'a mut BytesMut,
    write: &'a mut BoxWriter,
    body: Body,
    trailer: Vec<u8>,
    recording: Option<&'a Recording>,
    sent: &'a AtomicBool,
}

impl RequestCopy<'_> {
    /// Ends only when the visitor goes away, or sends what cannot be followed.
    async fn run(&mut self, head: &[u8]) -> SendError {
        match self.send_request(head).await {
            Ok(None) => self.sent.store(true, Ordering::Relaxed),
            Ok(Some(unsent)) => return unsent,
            // The local service reads no more, but it may have answered.
            Err(_) => std::future::pending().await,
        }
        // Sees that the visitor leaves, and reads what it asks next.
        while self.buffer.len() < MAX_READ_AHEAD_BYTES {
            match self.read.read_buf(self.buffer).await {
                Ok(1..) => {}
                _ => return SendError::Gone,
            }
        }
        std::future::pending().await
    }

    /// Sends head and body; says why, when there is not all of it.
    async fn send_request(&mut self, mut head: &[u8]) -> io::Result<Option<SendError>> {
        let mut room = ReadRoom::NEW;
        loop {
            let taken = match self.follow_body() {
                Ok(taken) => taken,
                Err(error) => return Ok(Some(SendError::Malformed(error))),
            };
            // What came with the head leaves with it.
            let piece = self.buffer.get(..taken).unwrap_or_default();
            self.write.write_all_buf(&mut Buf::chain(head, piece)).await?;
            head = b"";
            self.buffer.advance(taken);
            if self.body.is_done() {
                break;
            }
            if self.buffer.is_empty() {
                self.write.flush().await?;
                room.note_read(taken);
                room.reserve(self.buffer);
                match self.read.read_buf(self.buffer).await {
                    Ok(1..) => {}
                    _ => return Ok(Some(SendError::Gone)),
                }
            }
        }
        self.write.flush().await?;
        shrink_buffer(self.buffer);
        Ok(None)
    }

    /// How many bytes of the buffer belong to the body.
    fn follow_body(&mut self) -> Result<usize, FramingError> {
        if self.body.is_done() {
            return Ok(0);
        }
        let (recording, trailer) = (self.recording, &mut self.trailer);
        let record = |data: &[u8]| {
            if let Some(recording) = recording {
                recording.request_body(data);
            }
        };
        let taken = self.body.take_all(self.buffer, record, |byte| trailer.push(byte))?;
        if let Some(recording) = recording.filter(|_| self.body.is_done()) {
            recording.request_complete(&self.trailer);
        }
        Ok(taken)
    }
}

enum ResponseEnd {
    Whole { keep_alive: bool },
    Upgraded,
}

/// The direction from the local service to the visitor.
struct ResponseCopy<'a> {
    front: &'a HttpForwarder,
    head: &'a RelayRequest,
    recording: Option<&'a Recording>,
    /// The ban of the local service, until a new connection to it has had a response.
    unanswered: Option<ReuseBan>,
    read: &'a mut BoxReader,
    buffer: &'a mut BytesMut,
    trailer: Vec<u8>,
    write: &'a mut BoxWriter,
    /// Set before the visitor gets anything of the final response.
    status: &'a AtomicU16,
    activity: &'a Activity<'a>,
}

impl ResponseCopy<'_> {
    async fn run(mut self) -> Result<ResponseEnd, RelayError> {
        let expected =
            ExpectedResponse { to_head: self.head.is_head, may_switch: self.head.upgrade };
        let mut reader = ResponseHeadReader::new(ResponseGrammar::Tolerant, expected);
        loop {
            let progress = reader.read_next(self.buffer, RelayResponse::from_head);
            match progress.map_err(|head_error| unanswered_error(&head_error.to_string()))? {
                HeadProgress::Incomplete => match self.read_head_part().await {
                    Ok(1..) => {}
                    Ok(0) => return Err(unanswered_error("it closed the connection")),
                    Err(error) => return Err(unanswered_error(&error.to_string())),
                },
                HeadProgress::Interim { length, .. } => self.flush_bytes(length).await?,
                HeadProgress::Final(head) => return self.relay_response(head).await,
            }
        }
    }

    /// Reads more of a head. While a new connection gets nothing, idle connections to the local service are given up.
    async fn read_head_part(&mut self) -> io::Result<usize> {
        let reading = self.read.read_buf(self.buffer);
        match self.unanswered.take() {
            Some(ban) => ban.await_response(reading, || {}).await,
            None => reading.await,
        }
    }

    /// Records the head of a response.
    fn begin_response(&mut self, head: &RelayResponse) {
        self.status.store(head.status, Ordering::Relaxed);
        if let Some(recording) = self.recording {
            recording.response_head(self.buffer.get(..head.length).unwrap_or_default(), &head.body);
        }
    }

    async fn relay_response(&mut self, head: RelayResponse) -> Result<ResponseEnd, RelayError> {
        self.begin_response(&head);
        let RelayResponse { length, status, mut body, keep_alive, .. } = head;
        let (announced, mut room) = (body.clone(), ReadRoom::NEW);
        let mut pending = length;
        if let Some(rewritten) = self.rewrite_redirect(length) {
            self.buffer.advance(length);
            self.write.write_all(&rewritten).await.map_err(visitor_left_error)?;
            pending = 0;
        }
        if status == 101 {
            self.flush_bytes(pending).await?;
            return Ok(ResponseEnd::Upgraded);
        }
        let activity = self.activity;
        let unframed = (body == Body::UntilClose).then(|| activity.begin_unframed());
        loop {
            // What arrived with the head leaves with it.
            let taken = self.follow_body(&mut body, pending);
            let received = pending + taken.unwrap_or_default();
            self.flush_bytes(received).await?;
            if taken.is_none() {
                return Err(self.cut_off_error(&announced, "sent a chunk that is malformed"));
            }
            pending = 0;
            if body.is_done() {
                shrink_buffer(self.buffer);
                let keep_alive = keep_alive && !body.has_padding();
                return Ok(ResponseEnd::Whole { keep_alive });
            }
            room.note_read(received);
            room.reserve(self.buffer);
            match self.read.read_buf(self.buffer).await {
                Ok(1..) => {}
                Ok(0) if body == Body::UntilClose => {
                    unframed.into_iter().for_each(UnframedAnswer::complete);
                    return Ok(ResponseEnd::Whole { keep_alive: false });
                }
                Ok(0) => return Err(self.cut_off_error(&announced, "closed the connection")),
                Err(error) => {
                    return Err(self.cut_off_error(&announced, &format!("broke off ({error})")));
                }
            }
        }
    }

    /// Follows the body through the buffer. Returns the number of its bytes that go on, or `None` if its framing
    /// is broken.
    fn follow_body(&mut self, body: &mut Body, start: usize) -> Option<usize> {
        let recording = self.recording;
        let record = |data: &[u8]| {
            if let Some(recording) = recording {
                recording.response_body(data);
            }
        };
        let trailer = &mut self.trailer;
        let taken = body.take_clean(self.buffer, start, record, |byte| trailer.push(byte)).ok()?;
        if let Some(recording) = recording.filter(|_| body.is_done()) {
            recording.response_complete(&self.trailer);
        }
        Some(taken)
    }

    /// What the local service did in the middle of the body.
    fn cut_off_error(&self, announced: &Body, deed: &str) -> RelayError {
        let received = self.recording.map_or(0, Recording::response_length);
        RelayError::Broken(format!(
            "the local service {deed} after {}",
            describe_progress(announced, received)
        ))
    }

    async fn flush_bytes(&mut self, count: usize) -> Result<(), RelayError> {
        let bytes = self.buffer.get(..count).unwrap_or_default();
        self.write.write_all(bytes).await.map_err(visitor_left_error)?;
        self.buffer.advance(count);
        self.write.flush().await.map_err(visitor_left_error)
    }

    /// The head with a `Location` that works for the visitor, where ours does not.
    fn rewrite_redirect(&self, length: usize) -> Option<Vec<u8>> {
        let public = self.head.host.as_deref()?;
        let local = self.front.local_host()?;
        let head = self.buffer.get(..length)?;
        rewrite::rewrite_response_head(head, &local, public, self.front.scheme)
    }
}

/// Gives a large buffer back, so that a connection that waits holds little.
fn shrink_buffer(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > BUFFER_BYTES {
        *buffer = BytesMut::with_capacity(BUFFER_BYTES);
    }
}

/// How much came of a body.
fn describe_progress(announced: &Body, received: u64) -> String {
    match announced {
        Body::Length(length) => format!("{received} of {length} bytes"),
        Body::Chunks(_) => format!("{received} bytes of a body in chunks"),
        Body::UntilClose => format!("{received} bytes"),
    }
}

fn visitor_left_error(_: io::Error) -> RelayError {
    RelayError::Broken(VISITOR_LEFT.to_owned())
}

fn unanswered_error(problem: &str) -> RelayError {
    RelayError::Unanswered(format!("The local service sent no usable response: {problem}."))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::task::{Context, Poll};

    use tokio::io::AsyncWrite;

    use super::*;

    /// What is written, write by write.
    #[derive(Default, Clone)]
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            parts: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.poll_write(cx, &all)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn a_body_that_came_with_its_head_leaves_with_it() {
        let writes = Writes::default();
        let (mut read, mut write): (BoxReader, BoxWriter) =
            (Box::pin(&b"lo"[..]), Box::pin(writes.clone()));
        let mut buffer = BytesMut::from("hel");
        let sent = AtomicBool::new(false);
        let mut copy = RequestCopy {
            read: &mut read,
            buffer: &mut buffer,
            write: &mut write,
            body: Body::Length(5),
            trailer: Vec::new(),
            recording: None,
            sent: &sent,
        };

        assert!(copy.send_request(b"head ").await.is_ok_and(|unsent| unsent.is_none()));

        let writes = writes.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(writes, [b"head hel".to_vec(), b"lo".to_vec()]);
    }
}
