//! A stream's state, and who waits for a change of it.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use super::error::{Ended, Reset};
use super::state::State;
use super::{Code, Group};

/// What the session's task and the stream's owner share.
pub(super) struct Cell {
    pub(super) id: u32,
    /// The group that the stream is reset with, if any.
    pub(super) group: Option<Group>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// The stream stands in the queue for room to write.
    pub(super) queued: bool,
    ended: Option<Ended>,
}

impl Cell {
    pub(super) fn new(id: u32, group: Option<Group>) -> Self {
        Self { id, group, inner: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn announce(&self, length: usize) -> Result<(), Code> {
        let mut inner = self.lock();
        let announced = inner.state.announce(length);
        if announced.is_err() {
            inner.wake_both();
        }
        announced
    }

    pub(super) fn arrive(&self, bytes: Bytes) {
        let reader = {
            let mut inner = self.lock();
            inner.state.arrive(bytes);
            inner.reader.take()
        };
        wake(reader);
    }

    /// Notes the peer's FIN; true when the stream is gone by it.
    pub(super) fn peer_finish(&self) -> bool {
        let mut inner = self.lock();
        inner.state.peer_finish();
        wake(inner.reader.take());
        inner.state.is_gone()
    }

    pub(super) fn widen(&self, increment: usize) {
        let mut inner = self.lock();
        inner.state.widen(increment);
        wake(inner.writer.take());
    }

    pub(super) fn reset(&self, code: Code) {
        let mut inner = self.lock();
        inner.state.reset(code);
        inner.wake_both();
    }

    pub(super) fn end(&self, why: Ended) {
        let mut inner = self.lock();
        inner.ended = Some(why);
        inner.wake_both();
    }

    /// There is room to write again.
    pub(super) fn room(&self) {
        let mut inner = self.lock();
        inner.queued = false;
        wake(inner.writer.take());
    }
}

impl Inner {
    /// Why nothing can be written any more.
    pub(super) fn unwritable(&self) -> Option<io::Error> {
        if self.state.is_finished() && self.state.was_reset().is_none() {
            return Some(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was shut down"));
        }
        self.broken()
    }

    /// Why the stream broke.
    pub(super) fn broken(&self) -> Option<io::Error> {
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

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
