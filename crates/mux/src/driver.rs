//! The task that reads and writes a session's connection.
//!
//! One task does both: what it reads makes frames to write, and both halves of a TLS connection
//! share one state anyway.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::timeout;

use ginnel_base::logging::or_debug;

use crate::batching::Batching;
use crate::frame::{Data, Decoder, FrameEvent};
use crate::limits::LoginLimits;
use crate::read_buffers::{self, READ_BUFFER_BYTES};
use crate::send_queue::End;
use crate::session::{MuxSessionState, Owner};
use crate::stream_cell::StreamCell;
use crate::{Code, LoginLimitError, SessionEnd, Stream};

/// More room is made when a buffer has less than this.
const MIN_READ_BYTES: usize = 16 * 1024;
/// The size of the buffer of a peer that has not authenticated: there may be many of them.
const LOGIN_BUFFER_BYTES: usize = 4 * 1024;
/// A peer that was read from no more often than this since the last look is at rest.
const MAX_TURNS_AT_REST: u32 = 16;
/// Bytes to read before others have a turn: readers should grant new windows in time.
const READ_TURN_BYTES: usize = 64 * 1024;
/// With more than this to write, nothing is read: a peer that reads nothing gets no answers.
const MAX_PENDING_WRITE_BYTES: usize = 1024 * 1024;
/// A buffer of this size is kept for good.
const MAX_IDLE_BUFFER_BYTES: usize = 32 * 1024;
/// Short writes in a row before a larger buffer is given back.
const SHORT_WRITES_BEFORE_SHRINK: u32 = 64;
/// How long the end of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The task that reads and writes a session's connection.
pub struct Driver<Io> {
    io: Io,
    shared: Arc<MuxSessionState>,
    owner: Weak<Owner>,
    accepted: mpsc::Sender<Stream>,
    decoder: Decoder,
    /// What the peer may still ask for before it authenticates; none once it has.
    login: Option<LoginProgress>,
    /// What was read and is no whole frame yet; without a buffer where there is nothing.
    input: BytesMut,
    /// How often the connection was read since the last look at what is held.
    turns: u32,
    /// Where the body of the current DATA frame goes.
    current: Option<FrameBody>,
    batching: Batching,
    output: Vec<u8>,
    /// How much of `output` was written.
    written: usize,
    unflushed: bool,
    /// How many times in a row `output` was far too large.
    oversized: u32,
}

/// What a half of the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It has more to do.
    Again,
    /// The connection wakes it.
    Blocked,
    /// A stream wakes it.
    Idle,
}

struct FrameBody {
    cell: Arc<StreamCell>,
    fin: bool,
}

/// What a peer may still ask for before it authenticates.
struct LoginProgress {
    limits: LoginLimits,
    /// Bytes that it may still send.
    left: usize,
}

impl LoginProgress {
    /// So many bytes came.
    fn count_bytes(&mut self, length: usize) -> Result<(), LoginLimitError> {
        self.left = self.left.checked_sub(length).ok_or(self.too_many_bytes())?;
        Ok(())
    }

    /// A frame with so long a body begins, of which no more than `buffered` bytes were counted.
    fn check_frame_length(&self, length: usize, buffered: usize) -> Result<(), LoginLimitError> {
        if length > self.left + buffered { Err(self.too_many_bytes()) } else { Ok(()) }
    }

    fn too_many_bytes(&self) -> LoginLimitError {
        LoginLimitError::Bytes(self.limits.bytes)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Driver<Io> {
    pub fn new(
        io: Io,
        shared: Arc<MuxSessionState>,
        owner: Weak<Owner>,
        accepted: mpsc::Sender<Stream>,
        login: Option<LoginLimits>,
    ) -> Self {
        Self {
            io,
            shared,
            owner,
            accepted,
            decoder: Decoder::default(),
            login: login.map(|limits| LoginProgress { limits, left: limits.bytes }),
            input: BytesMut::new(),
            turns: 0,
            current: None,
            batching: Batching::default(),
            output: Vec::new(),
            written: 0,
            unflushed: false,
            oversized: 0,
        }
    }

    /// Serves the session until it is over.
    pub async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        if let Err(ended) = poll_fn(|cx| self.poll(cx)).await {
            match ended {
                SessionEnd::Protocol(problem) => {
                    shared.go_away(Code::PROTOCOL, &problem.to_string(), ended);
                }
                SessionEnd::BeforeLogin(_) => {
                    shared.go_away(Code::ENHANCE_YOUR_CALM, &ended.to_string(), ended);
                }
                _ => shared.end(ended, End::AtOnce),
            }
        }
        let how = shared.send_queue.requested_end();
        // Boxed, so that no session has room for its end from the beginning.
        let finished =
            Box::pin(timeout(CLOSE_TIMEOUT, self.close_connection(how.unwrap_or(End::AtOnce))));
        or_debug!(finished.await, "the session is cut off");
        shared.mark_closed();
    }

    /// Writes what is queued, reads, writes what came of that, then waits. `Ok` when the session was ended from outside.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SessionEnd>> {
        if self.shared.send_queue.requested_end().is_some() {
            return Poll::Ready(Ok(()));
        }
        let queued = self.shared.send_queue.len();
        if self.batching.should_wait(queued) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let is_congested = queued > MAX_PENDING_WRITE_BYTES;
        // Windows are granted before more is read, so that the peer need not stand still.
        if queued > 0
            && !is_congested
            && let Err(ended) = self.send_frames(cx)
        {
            return Poll::Ready(Err(ended));
        }
        let received = if is_congested { Ok(Next::Again) } else { self.receive_frames(cx) };
        match received.and_then(|received| Ok((received, self.send_frames(cx)?))) {
            Err(ended) => return Poll::Ready(Err(ended)),
            Ok((Next::Again, Next::Blocked)) if is_congested => {}
            Ok((Next::Again, _) | (_, Next::Again)) => cx.waker().wake_by_ref(),
            Ok(_) => {}
        }
        Poll::Pending
    }

    /// Reads for one turn.
    fn receive_frames(&mut self, cx: &mut Context<'_>) -> Result<Next, SessionEnd> {
        if self.login.is_some() && self.shared.authenticated.load(Ordering::Acquire) {
            self.login = None;
        }
        self.turns = self.turns.saturating_add(1);
        if self.shared.presence.take_review() {
            self.release_idle_buffers();
        }
        if self.login.is_some() {
            return self.read_frames(cx, LOGIN_BUFFER_BYTES);
        }
        if self.input.is_empty() {
            self.input = read_buffers::take_buffer();
        }
        let received = self.read_frames(cx, READ_BUFFER_BYTES);
        if self.input.is_empty() {
            read_buffers::return_buffer(std::mem::take(&mut self.input));
        }
        received
    }

    /// Reads for one turn into buffers of this size.
    fn read_frames(&mut self, cx: &mut Context<'_>, buffer: usize) -> Result<Next, SessionEnd> {
        let mut left = READ_TURN_BYTES;
        while left > 0 {
            if self.input.capacity() - self.input.len() < MIN_READ_BYTES.min(buffer) {
                self.input.reserve(buffer);
            }
            match pin!(self.io.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => return Ok(Next::Blocked),
                Poll::Ready(Ok(0)) => return Err(SessionEnd::PeerClosed),
                Poll::Ready(Ok(length)) => {
                    left = left.saturating_sub(length);
                    self.shared.presence.record_received();
                    self.login.as_mut().map_or(Ok(()), |login| login.count_bytes(length))?;
                }
                Poll::Ready(Err(error)) => return Err(end_from_error(error)),
            }
            while let Some(event) = self.decoder.next(&mut self.input)? {
                self.handle_event(event)?;
            }
        }
        Ok(Next::Again)
    }

    /// Gives back what frames were written from, when there were few of late.
    fn release_idle_buffers(&mut self) {
        let is_at_rest = std::mem::take(&mut self.turns) <= MAX_TURNS_AT_REST;
        if is_at_rest && self.written == self.output.len() {
            (self.output, self.written) = (Vec::new(), 0);
            self.shared.send_queue.release_empty_buffer();
        }
    }

    /// Writes what is queued.
    fn send_frames(&mut self, cx: &mut Context<'_>) -> Result<Next, SessionEnd> {
        let is_idle = loop {
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                let taken = self.shared.send_queue.take_batch(&mut self.output, cx.waker());
                taken.admitted.iter().for_each(|cell| cell.notify_room());
                if self.output.is_empty() {
                    break taken.is_idle;
                }
                self.shrink_output();
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.output[self.written..]) {
                Poll::Pending if self.shared.send_queue.register_stalled(cx.waker()) => {
                    return Ok(Next::Blocked);
                }
                Poll::Pending => return Ok(Next::Again),
                Poll::Ready(Ok(0)) => return Err(SessionEnd::PeerClosed),
                Poll::Ready(Ok(length)) => self.written += length,
                Poll::Ready(Err(error)) => return Err(end_from_error(error)),
            }
            self.unflushed = true;
        };
        if self.unflushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(end_from_error(error)),
            }
        }
        Ok(if is_idle { Next::Idle } else { Next::Again })
    }

    /// Gives memory of a bulk transfer back when for long only little was written.
    fn shrink_output(&mut self) {
        let is_oversized = self.output.capacity() > MAX_IDLE_BUFFER_BYTES
            && self.output.len() <= MAX_IDLE_BUFFER_BYTES / 4;
        self.oversized = if is_oversized { self.oversized + 1 } else { 0 };
        if self.oversized > SHORT_WRITES_BEFORE_SHRINK {
            self.output.shrink_to(MAX_IDLE_BUFFER_BYTES);
            self.oversized -= 1;
        }
    }

    fn handle_event(&mut self, event: FrameEvent) -> Result<(), SessionEnd> {
        match event {
            FrameEvent::Data(data) => self.handle_data(data)?,
            FrameEvent::Piece { bytes, left } => {
                if let Some(FrameBody { cell, .. }) = &self.current
                    && let Err(code) = cell.receive_bytes(bytes)
                {
                    self.shared.lock_table().remove(cell.id);
                    self.shared.send_queue.queue_reset(cell.id, code);
                }
                if left == 0 {
                    self.complete_body();
                }
            }
            FrameEvent::Reset { stream, code } => {
                let cell = self.shared.lock_table().remove(stream);
                if let Some(cell) = cell {
                    cell.reset_by_peer(code);
                }
            }
            FrameEvent::Window { stream, increment } => {
                let cell = self.shared.lock_table().find(stream);
                if let Some(cell) = cell {
                    cell.increase_window(increment as usize);
                }
            }
            FrameEvent::GoAway { code, text } => return Err(SessionEnd::GoneAway { code, text }),
        }
        Ok(())
    }

    fn handle_data(&mut self, data: Data) -> Result<(), SessionEnd> {
        let announced =
            self.login.as_ref().map(|it| it.check_frame_length(data.length, self.input.len()));
        announced.unwrap_or(Ok(()))?;
        let cell = if data.syn {
            self.accept_stream(data.stream)?
        } else {
            self.shared.lock_table().find_receiver(data.stream).ok_or(Code::STREAM_CLOSED)
        };
        match cell.and_then(|cell| cell.announce_body(data.length).map(|()| cell)) {
            Ok(cell) => {
                self.current = Some(FrameBody { cell, fin: data.fin });
                if data.length == 0 {
                    self.complete_body();
                }
            }
            Err(code) => self.refuse_stream(data, code),
        }
        Ok(())
    }

    /// Takes a new stream; the inner error is the reason for refusing it.
    fn accept_stream(&self, id: u32) -> Result<Result<Arc<StreamCell>, Code>, SessionEnd> {
        let admitted = self.shared.lock_table().check_admission(id)?;
        match (admitted, &self.login) {
            (Ok(()), _) => {}
            (Err(_), Some(login)) => Err(LoginLimitError::Streams(login.limits.streams))?,
            (Err(refused), None) => return Ok(Err(refused)),
        }
        let place = match self.accepted.try_reserve() {
            Ok(place) => place,
            Err(TrySendError::Full(())) => return Ok(Err(Code::ACCEPT_QUEUE_FULL)),
            Err(TrySendError::Closed(())) => return Ok(Err(Code::REFUSED)),
        };
        let Some(owner) = self.owner.upgrade() else { return Ok(Err(Code::REFUSED)) };
        let Some(cell) = self.shared.lock_table().accept_stream(id) else {
            return Ok(Err(Code::REFUSED));
        };
        place.send(Stream::new(Arc::clone(&cell), Arc::clone(&self.shared), owner));
        Ok(Ok(cell))
    }

    fn refuse_stream(&mut self, data: Data, code: Code) {
        self.decoder.skip_body();
        self.shared.lock_table().remove(data.stream);
        let is_late_fin = !data.syn && data.fin && data.length == 0;
        if !is_late_fin {
            self.shared.send_queue.queue_reset(data.stream, code);
        }
    }

    /// The body of a DATA frame is complete.
    fn complete_body(&mut self) {
        let Some(FrameBody { cell, fin }) = self.current.take() else { return };
        if fin && cell.peer_finish() {
            self.shared.lock_table().remove(cell.id);
        }
    }

    /// Ends the connection.
    async fn close_connection(self, how: End) {
        let Self { mut io, shared, accepted, output, written, mut input, .. } = self;
        drop(accepted);
        if how == End::Flushed {
            let rest = shared.send_queue.drain_buffer();
            let flushed: io::Result<()> = async {
                io.write_all(&output[written..]).await?;
                io.write_all(&rest).await?;
                io.flush().await
            }
            .await;
            or_debug!(flushed, "the last frames of a session were not sent");
        }
        if io.shutdown().await.is_ok() && how == End::Flushed {
            // Closing with unread bytes would take back what was just written.
            input.reserve(LOGIN_BUFFER_BYTES);
            while matches!(io.read_buf(&mut input).await, Ok(length) if length > 0) {
                input.clear();
            }
        }
    }
}

fn end_from_error(error: io::Error) -> SessionEnd {
    match error.kind() {
        // Processes end without saying so.
        io::ErrorKind::UnexpectedEof => SessionEnd::PeerClosed,
        _ => SessionEnd::Broken(Arc::new(error)),
    }
}
