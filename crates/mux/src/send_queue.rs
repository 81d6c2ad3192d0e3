//! The frames of all streams, on their way to the one task that writes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::Code;
use crate::frame::{self, FRAME_HEAD_BYTES};
use crate::stream_cell::StreamCell;

/// Bytes that may wait to be written before streams must wait.
const MAX_QUEUED_BYTES: usize = 128 * 1024;
/// Short writes may go beyond, so that they need not stand behind a bulk stream.
const MAX_QUEUED_BYTES_FOR_SHORT: usize = 2 * MAX_QUEUED_BYTES;
const MAX_SHORT_BYTES: usize = 4 * 1024;
/// A longer body is sent as several frames, so that other streams get between.
pub const MAX_BODY_BYTES: usize = 32 * 1024;
/// Streams let in at once when room was made.
const MAX_ADMITTED_STREAMS: usize = 8;

/// Frames that wait to be written. Bounded for data; each other frame is owed to something that is
/// itself bounded: a stream that is open, a window that was read, or a frame of the peer.
pub struct SendQueue {
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
pub enum End {
    /// Write what is queued first.
    Flushed,
    /// Drop what is queued.
    AtOnce,
}

/// What the driver got.
pub struct FrameBatch {
    /// Streams to let in now.
    pub admitted: Vec<Arc<StreamCell>>,
    /// There is nothing to do, and the driver will be woken.
    pub is_idle: bool,
}

impl SendQueue {
    pub fn new() -> Self {
        Self { inner: Mutex::default(), room: Notify::new() }
    }

    fn lock_state(&self) -> MutexGuard<'_, SendQueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues some of `body` and says how much; 0 when there is no room.
    ///
    /// Then `cell` is in the queue, unless `queued` says that it was before.
    pub fn queue_data(
        &self,
        cell: &Arc<StreamCell>,
        body: &[u8],
        fin: bool,
        queued: &mut bool,
    ) -> usize {
        let mut inner = self.lock_state();
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
        inner.wake_driver();
        accepted
    }

    /// Queues the first frame of a stream whole; false when there is no room.
    pub fn queue_syn(&self, stream: u32, body: &[u8]) -> bool {
        let mut inner = self.lock_state();
        // What is new is let in like a short write, whatever its length.
        if inner.room_for(body.len().min(MAX_SHORT_BYTES)) == 0 {
            return false;
        }
        frame::put_data(&mut inner.buffer, stream, true, false, body);
        inner.wake_driver();
        true
    }

    pub fn queue_fin(&self, stream: u32) {
        self.queue_frame(|buffer| frame::put_data(buffer, stream, false, true, &[]));
    }

    pub fn queue_reset(&self, stream: u32, code: Code) {
        self.queue_frame(|buffer| frame::put_reset(buffer, stream, code));
    }

    pub fn queue_window(&self, stream: u32, increment: u32) {
        self.queue_frame(|buffer| frame::put_window(buffer, stream, increment));
    }

    pub fn queue_go_away(&self, last: u32, code: Code, text: &str) {
        self.queue_frame(|buffer| frame::put_go_away(buffer, last, code, text));
    }

    fn queue_frame(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.lock_state();
        // Nobody would take it out.
        if inner.end.is_none() {
            put(&mut inner.buffer);
            inner.wake_driver();
        }
    }

    /// Resolves when room was made after it was enabled.
    pub fn wait_for_room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.lock_state().buffer.len()
    }

    /// Swaps what is queued for `empty`. With nothing queued it remembers whom to wake.
    pub fn take_batch(&self, empty: &mut Vec<u8>, driver: &Waker) -> FrameBatch {
        let mut inner = self.lock_state();
        std::mem::swap(&mut inner.buffer, empty);
        let admitted = inner.admit_waiting();
        let is_idle = empty.is_empty() && admitted.is_empty() && inner.end.is_none();
        if is_idle {
            inner.idle = Some(driver.clone());
        } else {
            self.room.notify_waiters();
        }
        FrameBatch { admitted, is_idle }
    }

    /// Gives back what a buffer without bytes holds.
    pub fn release_empty_buffer(&self) {
        let mut inner = self.lock_state();
        if inner.buffer.is_empty() {
            inner.buffer = Vec::new();
        }
    }

    /// What is queued.
    pub fn drain_buffer(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock_state().buffer)
    }

    /// Remembers whom to wake when the connection is to be ended, unless it already is.
    pub fn register_stalled(&self, driver: &Waker) -> bool {
        let mut inner = self.lock_state();
        inner.stalled = Some(driver.clone());
        inner.end.is_none()
    }

    /// Takes nothing more, and tells the driver to end the connection.
    pub fn end(&self, how: End) {
        let mut inner = self.lock_state();
        if inner.end.is_none() {
            inner.end = Some(how);
            inner.waiting = VecDeque::new();
            inner.wake_driver();
            if let Some(driver) = inner.stalled.take() {
                driver.wake();
            }
            self.room.notify_waiters();
        }
    }

    /// How to end the connection, once it is time.
    pub fn requested_end(&self) -> Option<End> {
        self.lock_state().end
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

    fn wake_driver(&mut self) {
        if let Some(driver) = self.idle.take() {
            driver.wake();
        }
    }

    fn admit_waiting(&mut self) -> Vec<Arc<StreamCell>> {
        let admitted = self.waiting.len().min(MAX_ADMITTED_STREAMS);
        self.waiting.drain(..admitted).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often the driver is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Fixture {
        queue: SendQueue,
        cell: Arc<StreamCell>,
        wakes: Arc<Wakes>,
    }

    impl Fixture {
        fn new() -> Self {
            let cell = Arc::new(StreamCell::new(3, None));
            Self { queue: SendQueue::new(), cell, wakes: Arc::default() }
        }

        /// What of a body of so many bytes was queued.
        fn data(&self, length: usize) -> usize {
            self.queue.queue_data(&self.cell, &vec![7; length], false, &mut false)
        }

        fn take(&self) -> (Vec<u8>, FrameBatch) {
            let mut taken = Vec::new();
            let batch = self.queue.take_batch(&mut taken, &Waker::from(Arc::clone(&self.wakes)));
            (taken, batch)
        }

        fn wakes(&self) -> usize {
            self.wakes.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_long_body_is_cut_into_frames_and_the_last_ends_the_stream() {
        let fixture = Fixture::new();
        let body = vec![7; 2 * MAX_BODY_BYTES + 1];

        let accepted = fixture.queue.queue_data(&fixture.cell, &body, true, &mut false);

        let mut expected = Vec::new();
        frame::put_data(&mut expected, 3, false, false, &body[..MAX_BODY_BYTES]);
        frame::put_data(&mut expected, 3, false, false, &body[..MAX_BODY_BYTES]);
        frame::put_data(&mut expected, 3, false, true, &[7]);
        assert_eq!((accepted, fixture.take().0), (body.len(), expected));
    }

    #[test]
    fn a_stream_is_not_ended_by_a_part_of_its_last_bytes() {
        let fixture = Fixture::new();
        let body = vec![7; 2 * MAX_QUEUED_BYTES];

        let accepted = fixture.queue.queue_data(&fixture.cell, &body, true, &mut false);

        assert_eq!(accepted, MAX_QUEUED_BYTES - FRAME_HEAD_BYTES);
        let (taken, _) = fixture.take();
        let last = accepted % MAX_BODY_BYTES;
        let mut expected = Vec::new();
        frame::put_data(&mut expected, 3, false, false, &body[..last]);
        assert!(taken.ends_with(&expected));
    }

    #[test]
    fn short_writes_have_room_behind_long_ones_and_both_end() {
        let fixture = Fixture::new();
        let long = MAX_SHORT_BYTES + 1;

        assert_eq!(fixture.data(MAX_QUEUED_BYTES), MAX_QUEUED_BYTES - FRAME_HEAD_BYTES);
        assert_eq!((fixture.data(long), fixture.data(MAX_SHORT_BYTES)), (0, MAX_SHORT_BYTES));
        while fixture.data(MAX_SHORT_BYTES) > 0 {}
        let full = fixture.queue.len();

        assert!(full <= MAX_QUEUED_BYTES_FOR_SHORT);
        assert!(full > MAX_QUEUED_BYTES_FOR_SHORT - 2 * (MAX_SHORT_BYTES + FRAME_HEAD_BYTES));
        assert!(!fixture.queue.queue_syn(5, &[7; MAX_SHORT_BYTES]));
        fixture.take();
        assert_eq!(fixture.data(long), long);
    }

    #[test]
    fn a_long_write_waits_rather_than_going_out_in_crumbs() {
        let fixture = Fixture::new();
        // Heads of five frames of data, and room for less than a short write.
        let filled = MAX_QUEUED_BYTES - MAX_SHORT_BYTES - 5 * FRAME_HEAD_BYTES;
        assert_eq!(fixture.data(filled + 1), filled + 1);

        assert_eq!(fixture.data(MAX_BODY_BYTES), 0);
    }

    #[test]
    fn a_new_stream_is_let_in_like_a_short_write_whatever_its_length() {
        let fixture = Fixture::new();
        fixture.data(MAX_QUEUED_BYTES);
        assert_eq!(fixture.data(MAX_BODY_BYTES), 0);

        assert!(fixture.queue.queue_syn(5, &[7; MAX_BODY_BYTES]));

        let mut expected = Vec::new();
        frame::put_data(&mut expected, 5, true, false, &[7; MAX_BODY_BYTES]);
        assert!(fixture.take().0.ends_with(&expected));
    }

    #[test]
    fn frames_without_data_are_queued_whatever_waits() {
        let fixture = Fixture::new();
        while fixture.data(1) > 0 {}
        let before = fixture.queue.len();

        fixture.queue.queue_fin(3);
        fixture.queue.queue_reset(5, Code::CANCELLED);
        fixture.queue.queue_window(7, 65_536);
        fixture.queue.queue_go_away(9, Code::NONE, "bye");

        let mut expected = Vec::new();
        frame::put_data(&mut expected, 3, false, true, &[]);
        frame::put_reset(&mut expected, 5, Code::CANCELLED);
        frame::put_window(&mut expected, 7, 65_536);
        frame::put_go_away(&mut expected, 9, Code::NONE, "bye");
        assert_eq!(fixture.queue.drain_buffer()[before..], expected);
        assert_eq!(fixture.queue.len(), 0);
    }

    #[test]
    fn streams_wait_once_each_and_are_let_in_a_few_at_a_time_in_their_order() {
        let fixture = Fixture::new();
        fixture.data(MAX_QUEUED_BYTES);
        for id in 0..MAX_ADMITTED_STREAMS as u32 + 1 {
            let (cell, mut queued) = (Arc::new(StreamCell::new(id, None)), false);
            for _ in 0..2 {
                assert_eq!(
                    fixture.queue.queue_data(&cell, &[7; MAX_BODY_BYTES], false, &mut queued),
                    0
                );
                assert!(queued);
            }
        }

        let admitted =
            || -> Vec<u32> { fixture.take().1.admitted.iter().map(|cell| cell.id).collect() };

        assert_eq!(admitted(), (0..MAX_ADMITTED_STREAMS as u32).collect::<Vec<_>>());
        assert_eq!(admitted(), [MAX_ADMITTED_STREAMS as u32]);
        assert_eq!(admitted(), [0; 0]);
    }

    #[test]
    fn the_driver_sleeps_with_nothing_to_do_and_is_woken_once() {
        let fixture = Fixture::new();
        fixture.data(1);
        assert!(!fixture.take().1.is_idle);
        fixture.data(1);
        assert_eq!(fixture.wakes(), 0, "it did not sleep");

        fixture.take();
        assert!(fixture.take().1.is_idle);
        fixture.queue.queue_fin(3);
        fixture.queue.queue_fin(5);

        assert_eq!(fixture.wakes(), 1);
    }

    #[test]
    fn only_the_end_wakes_a_driver_that_cannot_write() {
        let fixture = Fixture::new();
        assert!(fixture.queue.register_stalled(&Waker::from(Arc::clone(&fixture.wakes))));
        fixture.data(1);
        assert_eq!(fixture.wakes(), 0);

        fixture.queue.end(End::Flushed);

        assert_eq!(fixture.wakes(), 1);
        assert!(!fixture.queue.register_stalled(&Waker::from(Arc::clone(&fixture.wakes))));
    }

    #[test]
    fn nothing_is_queued_behind_the_end_and_the_first_end_counts() {
        let fixture = Fixture::new();
        fixture.data(1);
        let before = fixture.queue.len();
        assert_eq!(fixture.queue.requested_end(), None);

        fixture.queue.end(End::Flushed);
        fixture.queue.end(End::AtOnce);
        fixture.queue.queue_fin(3);
        let mut queued = false;
        let accepted = fixture.queue.queue_data(&fixture.cell, b"x", false, &mut queued);

        assert_eq!(fixture.queue.requested_end(), Some(End::Flushed));
        assert_eq!((accepted, queued, fixture.queue.queue_syn(5, b"")), (0, false, false));
        assert_eq!(fixture.queue.len(), before);
        fixture.take();
        assert!(!fixture.take().1.is_idle, "there is an end to make");
    }

    #[tokio::test]
    async fn who_opens_a_stream_hears_of_room_and_of_the_end() {
        let fixture = Fixture::new();
        fixture.data(1);
        let room = fixture.queue.wait_for_room();
        fixture.take();
        room.await;

        let room = fixture.queue.wait_for_room();
        fixture.queue.end(End::AtOnce);
        room.await;
    }
}
