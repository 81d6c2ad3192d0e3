//! What other threads tell a reactor.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use mio::Waker;

use ginnel_base::logging::or_debug;

use crate::connection::ApiConnection;
use crate::dial::AttemptError;
use crate::socket::ClientSocket;

/// The messages that no turn has read, and what wakes the reactor for them.
pub(super) struct ReactorInbox {
    pub(super) waker: Waker,
    has_messages: AtomicBool,
    messages: Mutex<Vec<(u64, ReactorMessage)>>,
}

/// What has happened on another thread.
pub(super) enum ReactorMessage {
    /// A connection was opened, or not.
    Opened(Result<ApiConnection<ClientSocket>, AttemptError>),
    /// It is the call's turn in line.
    WaiterState,
}

impl ReactorInbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, has_messages: AtomicBool::new(false), messages: Mutex::default() }
    }

    pub(super) fn push_message(&self, call: u64, message: ReactorMessage) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push((call, message));
        if !self.has_messages.swap(true, Relaxed) {
            // Without it the mail is read at the next turn.
            or_debug!(self.waker.wake(), "cannot wake the event loop");
        }
    }

    pub(super) fn take_messages(&self) -> Vec<(u64, ReactorMessage)> {
        if !self.has_messages.load(Relaxed) {
            return Vec::new();
        }
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_messages.store(false, Relaxed);
        std::mem::take(&mut messages)
    }
}
