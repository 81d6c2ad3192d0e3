//! Letting everyone know that it is time to go, without anyone having to ask often.
//!
//! A connection looks at a number each time it does something, and leaves its waker once. The socket
//! that the connections come from is closed by whoever begins the shutdown.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::net;

/// How urgent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownPhase {
    /// Not at all.
    Running,
    /// No more connections and requests; what is in flight is finished.
    Graceful,
    /// Everything ends at once.
    Forced,
}

/// Tells everyone who listens.
#[derive(Debug)]
pub(crate) struct Shutdown {
    call: AtomicU8,
    socket: net::Listener,
    waiting: Mutex<Wakers>,
}

#[derive(Debug, Default)]
struct Wakers {
    wakers: HashMap<u64, Waker>,
    last: u64,
}

/// Somebody who listens.
#[derive(Debug)]
pub(crate) struct ShutdownSignal {
    shutdown: Arc<Shutdown>,
    /// Where the waker lies, and what was called when it was left.
    place: Option<(u64, ShutdownPhase)>,
}

impl Shutdown {
    /// The shutdown of the connections of a socket.
    pub(crate) fn new(socket: net::Listener) -> Arc<Self> {
        let call = AtomicU8::new(ShutdownPhase::Running as u8);
        Arc::new(Self { call, socket, waiting: Mutex::default() })
    }

    /// Where the connections come from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Calls everyone who listens now or later; a call is not taken back.
    pub(crate) fn begin(&self, call: ShutdownPhase) {
        self.call.fetch_max(call as u8, SeqCst);
        if call >= ShutdownPhase::Graceful {
            self.socket.close();
        }
        let wakers = std::mem::take(&mut self.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    pub(crate) fn listen(self: &Arc<Self>) -> ShutdownSignal {
        ShutdownSignal { shutdown: self.clone(), place: None }
    }

    fn now(&self) -> ShutdownPhase {
        match self.call.load(SeqCst) {
            0 => ShutdownPhase::Running,
            1 => ShutdownPhase::Graceful,
            _ => ShutdownPhase::Forced,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Wakers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShutdownSignal {
    /// What was called; the task is woken when that changes.
    ///
    /// To be asked by one task only, since the waker is left once for each call.
    pub(crate) fn heard(&mut self, cx: &mut Context<'_>) -> ShutdownPhase {
        let before = self.shutdown.now();
        if self.place.is_some_and(|(_, at)| at == before) {
            return before;
        }
        self.leave();
        let mut waiting = self.shutdown.waiting();
        waiting.last += 1;
        let place = waiting.last;
        waiting.wakers.insert(place, cx.waker().clone());
        drop(waiting);
        self.place = Some((place, before));
        // It may have begun between the two.
        self.shutdown.now()
    }

    /// Waits for a call at least as urgent.
    pub(crate) async fn wait_for(&mut self, call: ShutdownPhase) {
        poll_fn(|cx| if self.heard(cx) >= call { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn leave(&mut self) {
        if let Some((place, _)) = self.place.take() {
            self.shutdown.waiting().wakers.remove(&place);
        }
    }
}

impl Clone for ShutdownSignal {
    fn clone(&self) -> Self {
        self.shutdown.listen()
    }
}

impl Drop for ShutdownSignal {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn everyone_hears_every_call() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (socket, _acceptor) = net::Listener::new(socket).unwrap();
        let shutdown = Shutdown::new(socket);
        let mut early = shutdown.listen();
        let waiting = tokio::spawn(async move {
            early.wait_for(ShutdownPhase::Graceful).await;
            early.wait_for(ShutdownPhase::Forced).await;
        });
        tokio::task::yield_now().await;

        shutdown.begin(ShutdownPhase::Graceful);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        shutdown.begin(ShutdownPhase::Forced);
        shutdown.begin(ShutdownPhase::Graceful);

        assert!(waiting.await.is_ok());
        shutdown.listen().wait_for(ShutdownPhase::Forced).await;
        assert!(shutdown.waiting().wakers.is_empty(), "who has gone leaves nothing behind");
    }
}
