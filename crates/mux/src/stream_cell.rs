//! A stream's state, and who waits for a change of it.

use std::cmp::Ordering;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use crate::backlog::UnreadAccount;
use crate::error::{Reset, SessionEnd};
use crate::stream_state::StreamState;
use crate::{Code, Group};

/// What the session's task and the stream's owner share.
pub struct StreamCell {
    pub id: u32,
    /// The group that the stream is reset with, if any.
    pub group: Option<Group>,
    inner: Mutex<CellState>,
}

#[derive(Default)]
pub struct CellState {
    pub state: StreamState,
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// The stream stands in the queue for room to write.
    pub queued: bool,
    ended: Option<SessionEnd>,
    account: Option<Arc<UnreadAccount>>,
    /// How much of what waits is in the account.
    counted: usize,
}

impl StreamCell {
    pub fn new(id: u32, group: Option<Group>) -> Self {
        Self { id, group, inner: Mutex::default() }
    }

    pub fn lock_state(&self) -> MutexGuard<'_, CellState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn announce_body(&self, length: usize) -> Result<(), Code> {
        let mut inner = self.lock_state();
        let announced = inner.state.announce_body(length);
        if announced.is_err() {
            inner.wake_both();
        }
        announced
    }

    /// Some of a body is there. On `Err` the stream was reset with that code: more waits to be read
    /// than there is room for.
    pub fn receive_bytes(&self, bytes: Bytes) -> Result<(), Code> {
        let mut inner = self.lock_state();
        let is_high = inner.account.as_ref().is_some_and(|account| account.is_high());
        inner.state.receive_bytes(if is_high { Bytes::copy_from_slice(&bytes) } else { bytes });
        inner.update_account();
        let is_over = inner.is_over();
        if is_over {
            inner.reset(Code::ENHANCE_YOUR_CALM);
        }
        let reader = inner.reader.take();
        drop(inner);
        wake_task(reader);
        if is_over { Err(Code::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    /// Counts what waits to be read from now on.
    pub fn count_in(&self, account: Arc<UnreadAccount>) {
        let mut inner = self.lock_state();
        inner.account = Some(account);
        inner.update_account();
    }

    /// Notes the peer's FIN; true when the stream is gone by it.
    pub fn peer_finish(&self) -> bool {
        let mut inner = self.lock_state();
        inner.state.peer_finish();
        wake_task(inner.reader.take());
        inner.state.is_gone()
    }

    pub fn increase_window(&self, increment: usize) {
        let mut inner = self.lock_state();
        inner.state.increase_window(increment);
        wake_task(inner.writer.take());
    }

    /// The peer has reset the stream.
    pub fn reset_by_peer(&self, code: Code) {
        let mut inner = self.lock_state();
        inner.state.reset_by_peer(code);
        inner.update_account();
        inner.wake_both();
    }

    pub fn reset(&self, code: Code) {
        self.lock_state().reset(code);
    }

    pub fn end(&self, why: SessionEnd) {
        let mut inner = self.lock_state();
        inner.ended = Some(why);
        inner.wake_both();
    }

    /// There is room to write again.
    pub fn notify_room(&self) {
        let mut inner = self.lock_state();
        inner.queued = false;
        wake_task(inner.writer.take());
    }
}

impl CellState {
    /// Both directions are over.
    pub fn reset(&mut self, code: Code) {
        self.state.reset(code);
        self.update_account();
        self.wake_both();
    }

    /// Tells the account how much waits to be read now.
    pub fn update_account(&mut self) {
        let Some(account) = &self.account else { return };
        let now = self.state.buffered_bytes();
        match now.cmp(&self.counted) {
            Ordering::Greater => account.add(now - self.counted),
            Ordering::Less => account.subtract(self.counted - now),
            Ordering::Equal => {}
        }
        self.counted = now;
    }

    fn is_over(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.is_over(self.counted))
    }

    /// Why nothing can be written any more.
    pub fn write_error(&self) -> Option<io::Error> {
        match self.state.was_reset() {
            None if self.state.is_finished() => {
                Some(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down"))
            }
            // As on a socket: all that the peer had to send has come.
            Some(code) if self.state.is_peer_finished() => {
                Some(io::Error::new(io::ErrorKind::BrokenPipe, Reset(code)))
            }
            _ => self.stream_error(),
        }
    }

    /// Why the stream broke.
    pub fn stream_error(&self) -> Option<io::Error> {
        match (self.state.was_reset(), &self.ended) {
            (Some(code), _) => Some(Reset(code).into()),
            (None, Some(ended)) => Some(ended.clone().into()),
            (None, None) => None,
        }
    }

    fn wake_both(&mut self) {
        wake_task(self.reader.take());
        wake_task(self.writer.take());
    }
}

impl Drop for CellState {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.counted);
        }
    }
}

fn wake_task(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;
    use crate::backlog::UnreadBacklog;
    use crate::stream_state::{ReadResult, WINDOW};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A stream with somebody who waits to read, and somebody who waits to write.
    struct Fixture {
        cell: StreamCell,
        reader: Arc<Wakes>,
        writer: Arc<Wakes>,
    }

    impl Fixture {
        fn new() -> Self {
            let cell = StreamCell::new(3, None);
            let (reader, writer) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
            cell.lock_state().reader = Some(reader.clone().into());
            cell.lock_state().writer = Some(writer.clone().into());
            Self { cell, reader, writer }
        }

        /// How often reader and writer were woken.
        fn wakes(&self) -> (usize, usize) {
            (self.reader.0.load(Relaxed), self.writer.0.load(Relaxed))
        }
    }

    /// So many bytes arrive as they were announced.
    fn arrive(cell: &StreamCell, length: usize) -> Result<(), Code> {
        cell.announce_body(length).unwrap();
        cell.receive_bytes(vec![7; length].into())
    }

    #[test]
    fn what_happens_wakes_whom_it_concerns() {
        type Event = fn(&StreamCell);
        let events: [(&str, Event, (usize, usize)); 8] = [
            ("an announcement", |cell| cell.announce_body(5).unwrap(), (0, 0)),
            ("data", |cell| arrive(cell, 1).unwrap(), (1, 0)),
            ("the peer's end", |cell| assert!(!cell.peer_finish()), (1, 0)),
            ("a wider window", |cell| cell.increase_window(1), (0, 1)),
            ("room to write", |cell| cell.notify_room(), (0, 1)),
            ("a reset", |cell| cell.reset(Code::CANCELLED), (1, 1)),
            ("the end of the session", |cell| cell.end(SessionEnd::Closed), (1, 1)),
            ("too much data", |cell| assert!(cell.announce_body(WINDOW + 1).is_err()), (1, 1)),
        ];
        for (name, event, expected) in events {
            let fixture = Fixture::new();

            event(&fixture.cell);

            assert_eq!(fixture.wakes(), expected, "{name}");
        }
    }

    #[test]
    fn a_stream_that_got_room_may_wait_again() {
        let cell = StreamCell::new(3, None);
        cell.lock_state().queued = true;

        cell.notify_room();

        assert!(!cell.lock_state().queued);
    }

    #[test]
    fn a_stream_is_gone_by_the_peers_end_when_ours_was_there() {
        let cell = StreamCell::new(3, None);
        assert!(!cell.peer_finish());

        cell.lock_state().state.finish();

        assert!(cell.peer_finish());
    }

    #[test]
    fn an_account_knows_what_waits_while_the_stream_lives() {
        let backlog = Arc::new(UnreadBacklog::default());
        let account = UnreadAccount::new(&backlog);
        // So much that one byte more makes what waits in the session high.
        account.add(1 << 20);
        let cell = StreamCell::new(3, None);

        arrive(&cell, 1).unwrap();
        assert!(!account.is_high());
        cell.count_in(account.clone());
        assert!(account.is_high(), "what had come before counts");
        assert!(matches!(cell.lock_state().state.take_chunk(1), ReadResult::Bytes(_)));
        assert!(account.is_high(), "not settled yet");
        cell.lock_state().update_account();
        assert!(!account.is_high());
        arrive(&cell, 2).unwrap();
        assert!(account.is_high());
        cell.reset(Code::CANCELLED);
        assert!(!account.is_high());

        let cell = StreamCell::new(5, None);
        cell.count_in(account.clone());
        arrive(&cell, 1).unwrap();
        assert!(account.is_high());
        drop(cell);
        assert!(!account.is_high());
    }

    #[test]
    fn a_stream_with_more_than_there_is_room_for_is_reset() {
        let backlog = Arc::new(UnreadBacklog::default());
        let (account, others) = (UnreadAccount::new(&backlog), UnreadAccount::new(&backlog));
        others.add(6 << 20);
        account.add(WINDOW);
        let fixture = Fixture::new();
        fixture.cell.count_in(account);

        assert_eq!(arrive(&fixture.cell, 8 << 10), Ok(()));
        assert_eq!(arrive(&fixture.cell, 1), Err(Code::ENHANCE_YOUR_CALM));

        assert_eq!(fixture.wakes(), (1, 1));
        assert_eq!(fixture.cell.lock_state().state.was_reset(), Some(Code::ENHANCE_YOUR_CALM));
        assert_eq!(fixture.cell.lock_state().state.buffered_bytes(), 0);
    }

    #[test]
    fn bytes_before_a_reset_of_the_connection_are_still_read() {
        for (code, left) in [(Code::RESET, 3), (Code::CANCELLED, 0), (Code::FLOW_CONTROL, 0)] {
            let cell = StreamCell::new(3, None);
            arrive(&cell, 3).unwrap();

            cell.reset_by_peer(code);

            assert_eq!(cell.lock_state().state.copy_chunks(9, |_| {}), left, "{code}");
            assert!(!cell.lock_state().state.at_end(), "{code}");
            assert_eq!(
                cell.lock_state().stream_error().unwrap().kind(),
                io::ErrorKind::ConnectionReset
            );
        }
    }

    #[test]
    fn a_reset_behind_the_end_of_the_peer_is_a_broken_pipe_for_a_writer() {
        let cell = StreamCell::new(3, None);
        cell.peer_finish();

        cell.reset_by_peer(Code::STREAM_CLOSED);

        let error = cell.lock_state().write_error().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(error.to_string(), "the stream was reset: stream closed");
        assert!(cell.lock_state().state.at_end());
    }

    #[test]
    fn a_piece_is_copied_when_much_waits() {
        for (others, copied) in [(1 << 20, false), ((1 << 20) + 1, true)] {
            let account = UnreadAccount::new(&Arc::default());
            account.add(others);
            let cell = StreamCell::new(3, None);
            cell.count_in(account);
            let piece = Bytes::from(vec![7; 10]);

            cell.announce_body(piece.len()).unwrap();
            cell.receive_bytes(piece.clone()).unwrap();

            let ReadResult::Bytes(bytes) = cell.lock_state().state.take_chunk(10) else {
                panic!("no bytes")
            };
            assert_eq!((bytes.as_ptr() != piece.as_ptr(), bytes), (copied, piece), "{others}");
        }
    }

    #[test]
    fn who_reads_and_who_writes_learn_why_they_cannot() {
        type Event = fn(&StreamCell);
        let kinds: [(&str, Event, Option<io::ErrorKind>, Option<io::ErrorKind>); 6] = [
            ("nothing", |_| {}, None, None),
            (
                "our end",
                |cell| assert!(cell.lock_state().state.finish()),
                None,
                Some(io::ErrorKind::BrokenPipe),
            ),
            (
                "a reset",
                |cell| cell.reset(Code::CANCELLED),
                Some(io::ErrorKind::ConnectionReset),
                Some(io::ErrorKind::ConnectionReset),
            ),
            (
                "a reset after our end",
                |cell| {
                    cell.lock_state().state.finish();
                    cell.reset(Code::CANCELLED);
                },
                Some(io::ErrorKind::ConnectionReset),
                Some(io::ErrorKind::ConnectionReset),
            ),
            (
                "the end of the session",
                |cell| cell.end(SessionEnd::Silent),
                Some(io::ErrorKind::TimedOut),
                Some(io::ErrorKind::TimedOut),
            ),
            (
                "a reset and the end of the session",
                |cell| {
                    cell.reset(Code::CANCELLED);
                    cell.end(SessionEnd::Silent);
                },
                Some(io::ErrorKind::ConnectionReset),
                Some(io::ErrorKind::ConnectionReset),
            ),
        ];
        for (name, event, broken, unwritable) in kinds {
            let cell = StreamCell::new(3, None);

            event(&cell);

            let cell = cell.lock_state();
            assert_eq!(cell.stream_error().map(|error| error.kind()), broken, "{name}");
            assert_eq!(cell.write_error().map(|error| error.kind()), unwritable, "{name}");
        }
    }
}
