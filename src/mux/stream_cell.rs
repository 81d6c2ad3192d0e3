//! A stream's state, and who waits for a change of it.

use std::cmp::Ordering;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use crate::mux::backlog::UnreadAccount;
use crate::mux::error::{Reset, SessionEnd};
use crate::mux::stream_state::StreamState;
use crate::mux::{Code, Group};

/// What the session's task and the stream's owner share.
pub(crate) struct StreamCell {
    pub(crate) id: u32,
    /// The group that the stream is reset with, if any.
    pub(crate) group: Option<Group>,
    inner: Mutex<CellState>,
}

#[derive(Default)]
pub(crate) struct CellState {
    pub(crate) state: StreamState,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// The stream stands in the queue for room to write.
    pub(crate) queued: bool,
    ended: Option<SessionEnd>,
    account: Option<Arc<UnreadAccount>>,
    /// How much of what waits is in the account.
    counted: usize,
}

impl StreamCell {
    pub(crate) fn new(id: u32, group: Option<Group>) -> Self {
        Self { id, group, inner: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CellState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, length: usize) -> Result<(), Code> {
        let mut inner = self.lock();
        let announced = inner.state.announce(length);
        if announced.is_err() {
            inner.wake_both();
        }
        announced
    }

    /// Some of a body is there. On `Err` the stream was reset with that code: more waits to be read
    /// than there is room for.
    pub(crate) fn arrive(&self, bytes: Bytes) -> Result<(), Code> {
        let mut inner = self.lock();
        let is_high = inner.account.as_ref().is_some_and(|account| account.is_high());
        inner.state.arrive(if is_high { Bytes::copy_from_slice(&bytes) } else { bytes });
        inner.settle();
        let is_over = inner.is_over();
        if is_over {
            inner.reset(Code::ENHANCE_YOUR_CALM);
        }
        let reader = inner.reader.take();
        drop(inner);
        wake(reader);
        if is_over { Err(Code::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    /// Counts what waits to be read from now on.
    pub(crate) fn count_in(&self, account: Arc<UnreadAccount>) {
        let mut inner = self.lock();
        inner.account = Some(account);
        inner.settle();
    }

    /// Notes the peer's FIN; true when the stream is gone by it.
    pub(crate) fn peer_finish(&self) -> bool {
        let mut inner = self.lock();
        inner.state.peer_finish();
        wake(inner.reader.take());
        inner.state.is_gone()
    }

    pub(crate) fn widen(&self, increment: usize) {
        let mut inner = self.lock();
        inner.state.widen(increment);
        wake(inner.writer.take());
    }

    pub(crate) fn reset(&self, code: Code) {
        self.lock().reset(code);
    }

    pub(crate) fn end(&self, why: SessionEnd) {
        let mut inner = self.lock();
        inner.ended = Some(why);
        inner.wake_both();
    }

    /// There is room to write again.
    pub(crate) fn room(&self) {
        let mut inner = self.lock();
        inner.queued = false;
        wake(inner.writer.take());
    }
}

impl CellState {
    /// Both directions are over.
    pub(crate) fn reset(&mut self, code: Code) {
        self.state.reset(code);
        self.settle();
        self.wake_both();
    }

    /// Tells the account how much waits to be read now.
    pub(crate) fn settle(&mut self) {
        let Some(account) = &self.account else { return };
        let now = self.state.buffered();
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
    pub(crate) fn unwritable(&self) -> Option<io::Error> {
        if self.state.is_finished() && self.state.was_reset().is_none() {
            return Some(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down"));
        }
        self.broken()
    }

    /// Why the stream broke.
    pub(crate) fn broken(&self) -> Option<io::Error> {
        match (self.state.was_reset(), &self.ended) {
            (Some(code), _) => Some(Reset(code).into()),
            (None, Some(ended)) => Some(ended.clone().into()),
            (None, None) => None,
        }
    }

    fn wake_both(&mut self) {
        wake(self.reader.take());
        wake(self.writer.take());
    }
}

impl Drop for CellState {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.counted);
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
