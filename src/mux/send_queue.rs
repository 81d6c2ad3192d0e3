//! The frames of all streams, on their way to the one task that writes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::mux::Code;
use crate::mux::frame::{self, FRAME_HEAD_BYTES};
use crate::mux::stream_cell::StreamCell;

/// Bytes that may wait to be written before streams must wait.
const MAX_QUEUED_BYTES: usize = 128 * 1024;
/// Short writes may go beyond, so that they need not stand behind a bulk stream.
const MAX_QUEUED_BYTES_FOR_SHORT: usize = 2 * MAX_QUEUED_BYTES;
const MAX_SHORT_BYTES: usize = 4 * 1024;
/// A longer body is sent as several frames, so that other streams get between.
pub(crate) const MAX_BODY_BYTES: usize = 32 * 1024;
/// Streams let in at once when room was made.
const MAX_ADMITTED_STREAMS: usize = 8;

/// Frames that wait to be written. Bounded for data; each other frame is owed to something that is
/// itself bounded: a stream that is open, a window that was read, or a frame of the peer.
pub(crate) struct SendQueue {
    inner: Mutex<SendQueueState>,
    /// For streams that are not open yet.
    room: Notify,
}

#[derive(Default)]
struct SendQueueState {
    buffer: Vec<u8>,
    waiting: VecDeque<Arc<StreamCell>>,
    /// The driver, while it sleeps until something is queued.
    idle: Option<Waker>,
    /// The driver, while the connection takes nothing: only the end may wake it.
    stalled: Option<Waker>,
    end: Option<End>,
}

/// How the connection is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Write what is queued first.
    Flushed,
    /// Drop what is queued.
    AtOnce,
}

/// What the driver got.
pub(crate) struct FrameBatch {
    /// Streams to let in now.
    pub(crate) admitted: Vec<Arc<StreamCell>>,
    /// There is nothing to do, and the driver will be woken.
    pub(crate) is_idle: bool,
}

impl SendQueue {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::default(), room: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SendQueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues some of `body` and says how much; 0 when there is no room.
    ///
    /// Then `cell` is in the queue, unless `queued` says that it was before.
    pub(crate) fn data(
        &self,
        cell: &Arc<StreamCell>,
        body: &[u8],
        fin: bool,
        queued: &mut bool,
    ) -> usize {
        let mut inner = self.lock();
        let accepted = body.len().min(inner.room_for(body.len()));
        if accepted == 0 {
            if inner.end.is_none() && !std::mem::replace(queued, true) {
                inner.waiting.push_back(Arc::clone(cell));
            }
            return 0;
        }
        let mut rest = &body[..accepted];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(rest.len().min(MAX_BODY_BYTES));
            let is_last = fin && others.is_empty() && accepted == body.len();
            frame::put_data(&mut inner.buffer, cell.id, false, is_last, part);
            rest = others;
        }
        inner.wake();
        accepted
    }

    /// Queues the first frame of a stream whole; false when there is no room.
    pub(crate) fn syn(&self, stream: u32, body: &[u8]) -> bool {
        let mut inner = self.lock();
        // What is new is let in like a short write, whatever its length.
        if inner.room_for(body.len().min(MAX_SHORT_BYTES)) == 0 {
            return false;
        }
        frame::put_data(&mut inner.buffer, stream, true, false, body);
        inner.wake();
        true
    }

    pub(crate) fn fin(&self, stream: u32) {
        self.put(|buffer| frame::put_data(buffer, stream, false, true, &[]));
    }

    pub(crate) fn reset(&self, stream: u32, code: Code) {
        self.put(|buffer| frame::put_reset(buffer, stream, code));
    }

    pub(crate) fn window(&self, stream: u32, increment: u32) {
        self.put(|buffer| frame::put_window(buffer, stream, increment));
    }

    pub(crate) fn go_away(&self, last: u32, code: Code, text: &str) {
        self.put(|buffer| frame::put_go_away(buffer, last, code, text));
    }

    fn put(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.lock();
        // Nobody would take it out.
        if inner.end.is_none() {
            put(&mut inner.buffer);
            inner.wake();
        }
    }

    /// Resolves when room was made after it was enabled.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().buffer.len()
    }

    /// Swaps what is queued for `empty`. With nothing queued it remembers whom to wake.
    pub(crate) fn take(&self, empty: &mut Vec<u8>, driver: &Waker) -> FrameBatch {
        let mut inner = self.lock();
        std::mem::swap(&mut inner.buffer, empty);
        let admitted = inner.admit();
        let is_idle = empty.is_empty() && admitted.is_empty() && inner.end.is_none();
        if is_idle {
            inner.idle = Some(driver.clone());
        } else {
            self.room.notify_waiters();
        }
        FrameBatch { admitted, is_idle }
    }

    /// What is queued.
    pub(crate) fn drain(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock().buffer)
    }

    /// Remembers whom to wake when the connection is to be ended, unless it already is.
    pub(crate) fn stall(&self, driver: &Waker) -> bool {
        let mut inner = self.lock();
        inner.stalled = Some(driver.clone());
        inner.end.is_none()
    }

    /// Takes nothing more, and tells the driver to end the connection.
    pub(crate) fn end(&self, how: End) {
        let mut inner = self.lock();
        if inner.end.is_none() {
            inner.end = Some(how);
            inner.waiting = VecDeque::new();
            inner.wake();
            if let Some(driver) = inner.stalled.take() {
                driver.wake();
            }
            self.room.notify_waiters();
        }
    }

    /// How to end the connection, once it is time.
    pub(crate) fn ending(&self) -> Option<End> {
        self.lock().end
    }
}

impl SendQueueState {
    fn room_for(&self, bytes: usize) -> usize {
        let limit =
            if bytes <= MAX_SHORT_BYTES { MAX_QUEUED_BYTES_FOR_SHORT } else { MAX_QUEUED_BYTES };
        let room = limit.saturating_sub(self.buffer.len() + FRAME_HEAD_BYTES);
        // A long write rather waits than goes out in crumbs.
        if self.end.is_some() || room < bytes.min(MAX_SHORT_BYTES) { 0 } else { room }
    }

    fn wake(&mut self) {
        if let Some(driver) = self.idle.take() {
            driver.wake();
        }
    }

    fn admit(&mut self) -> Vec<Arc<StreamCell>> {
        let admitted = self.waiting.len().min(MAX_ADMITTED_STREAMS);
        self.waiting.drain(..admitted).collect()
    }
}
