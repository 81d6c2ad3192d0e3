//! Letting everyone know that it is time to go, without anyone having to ask often.
//!
//! A connection looks at a number each time it does something, and leaves its waker once. The socket
//! that the connections come from is closed by whoever rings.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::net;

/// How urgent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// Not at all.
    Open,
    /// No more connections and requests; what is in flight is finished.
    Close,
    /// Everything ends at once.
    Cut,
}

/// Tells everyone who listens.
#[derive(Debug)]
pub(crate) struct Bell {
    call: AtomicU8,
    socket: net::Listener,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: HashMap<u64, Waker>,
    last: u64,
}

/// Somebody who listens.
#[derive(Debug)]
pub(crate) struct Listener {
    bell: Arc<Bell>,
    /// Where the waker lies, and what was called when it was left.
    place: Option<(u64, Call)>,
}

impl Bell {
    /// A bell for the connections of a socket.
    pub(crate) fn new(socket: net::Listener) -> Arc<Self> {
        let call = AtomicU8::new(Call::Open as u8);
        Arc::new(Self { call, socket, waiting: Mutex::default() })
    }

    /// Where the connections come from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Calls everyone who listens now or later; a call is not taken back.
    pub(crate) fn ring(&self, call: Call) {
        self.call.fetch_max(call as u8, SeqCst);
        if call >= Call::Close {
            self.socket.close();
        }
        let wakers = std::mem::take(&mut self.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    pub(crate) fn listen(self: &Arc<Self>) -> Listener {
        Listener { bell: self.clone(), place: None }
    }

    fn now(&self) -> Call {
        match self.call.load(SeqCst) {
            0 => Call::Open,
            1 => Call::Close,
            _ => Call::Cut,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// What was called; the task is woken when that changes.
    ///
    /// To be asked by one task only, since the waker is left once for each call.
    pub(crate) fn heard(&mut self, cx: &mut Context<'_>) -> Call {
        let before = self.bell.now();
        if self.place.is_some_and(|(_, at)| at == before) {
            return before;
        }
        self.leave();
        let mut waiting = self.bell.waiting();
        waiting.last += 1;
        let place = waiting.last;
        waiting.wakers.insert(place, cx.waker().clone());
        drop(waiting);
        self.place = Some((place, before));
        // It may have rung between the two.
        self.bell.now()
    }

    /// Waits for a call at least as urgent.
    pub(crate) async fn wait_for(&mut self, call: Call) {
        poll_fn(|cx| if self.heard(cx) >= call { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn leave(&mut self) {
        if let Some((place, _)) = self.place.take() {
            self.bell.waiting().wakers.remove(&place);
        }
    }
}

impl Clone for Listener {
    fn clone(&self) -> Self {
        self.bell.listen()
    }
}

impl Drop for Listener {
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
        let bell = Bell::new(socket);
        let mut early = bell.listen();
        let waiting = tokio::spawn(async move {
            early.wait_for(Call::Close).await;
            early.wait_for(Call::Cut).await;
        });
        tokio::task::yield_now().await;

        bell.ring(Call::Close);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        bell.ring(Call::Cut);
        bell.ring(Call::Close);

        assert!(waiting.await.is_ok());
        bell.listen().wait_for(Call::Cut).await;
        assert!(bell.waiting().wakers.is_empty(), "who has gone leaves nothing behind");
    }
}
