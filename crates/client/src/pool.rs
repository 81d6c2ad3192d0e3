//! The connections of a client: which are idle, how many there are, and who waits for one.
//!
//! Whoever comes when there are as many as there may be waits in line, and is served in the order of
//! coming, whichever driver drives the call. No I/O but the look at a connection before it is used again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ginnel_http1::reuse::ReuseBan;
use ginnel_net::is_loopback_only;

use super::connection::ApiConnection;
use super::socket::SocketIo;

/// The connections of one client over one kind of socket.
#[derive(Debug)]
pub(super) struct ConnectionPool<S> {
    state: Mutex<PoolState<S>>,
    max_connections: usize,
}

#[derive(Debug)]
struct PoolState<S> {
    /// The last used one last.
    idle: Vec<ApiConnection<S>>,
    /// How many are in use, or being opened.
    in_use: usize,
    waiters: VecDeque<Arc<Waiter<S>>>,
    is_closed: bool,
}

/// A place in the line.
pub(super) struct Waiter<S> {
    state: Mutex<WaiterState<S>>,
    /// Called when the turn has come, on the thread of whoever gives it.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<S> std::fmt::Debug for Waiter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

enum WaiterState<S> {
    Waiting,
    Ready(Lease<S>),
    /// Nobody waits any more, or it was taken.
    Done,
}

/// The right to one connection; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Lease<S> {
    /// None once the right was given on.
    pool: Option<Arc<ConnectionPool<S>>>,
    /// None while it has to be opened.
    pub connection: Option<ApiConnection<S>>,
}

/// How a call gets its connection.
pub(super) enum Checkout<S> {
    /// At once; it may have to be opened.
    Lease(Lease<S>),
    /// In its turn.
    Waiter(Arc<Waiter<S>>),
}

/// What a call needs of a connection that was used before.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReuseRequirements<'a> {
    pub ban: &'a ReuseBan,
    /// Whether it may have been used at all.
    pub may_reuse: bool,
    /// Whether it must have been used lately, as the request is not sent twice.
    pub must_be_recent: bool,
}

impl<S: SocketIo> ConnectionPool<S> {
    pub fn new(max_connections: usize) -> Arc<Self> {
        let (idle, waiters) = (Vec::new(), VecDeque::new());
        let state = Mutex::new(PoolState { idle, in_use: 0, waiters, is_closed: false });
        Arc::new(Self { state, max_connections })
    }

    /// A connection, or a place in the line.
    pub fn checkout(
        self: &Arc<Self>,
        requirements: ReuseRequirements<'_>,
        wake: impl FnOnce() -> Box<dyn Fn() + Send + Sync>,
    ) -> Checkout<S> {
        let mut state = self.lock_state();
        if state.in_use >= self.max_connections {
            let waiter = Arc::new(Waiter { state: Mutex::new(WaiterState::Waiting), wake: wake() });
            state.waiters.push_back(waiter.clone());
            return Checkout::Waiter(waiter);
        }
        state.in_use += 1;
        drop(state);
        let connection = self.take_idle(requirements);
        Checkout::Lease(Lease { pool: Some(self.clone()), connection })
    }

    /// An idle connection that is good for this; those that are good for nothing are closed.
    fn take_idle(&self, requirements: ReuseRequirements<'_>) -> Option<ApiConnection<S>> {
        let next = || if requirements.may_reuse { self.lock_state().idle.pop() } else { None };
        while let Some(mut connection) = next() {
            if requirements.are_met_by(&mut connection) {
                return Some(connection);
            }
        }
        let mut state = self.lock_state();
        let is_full = state.idle.len() + state.in_use > self.max_connections;
        let oldest = is_full.then(|| state.idle.remove(0));
        drop(state);
        drop(oldest);
        None
    }
}

impl<S> ConnectionPool<S> {
    /// Closes the idle connections, and keeps none from now on. Who waits in line learns of it.
    pub fn close(&self) {
        let mut state = self.lock_state();
        state.is_closed = true;
        let (idle, waiters) = (std::mem::take(&mut state.idle), std::mem::take(&mut state.waiters));
        drop(state);
        drop(idle);
        for waiter in waiters {
            waiter.cancel();
            (waiter.wake)();
        }
    }

    /// Gives the right to a connection to who has waited for longest. Where nobody waits, the
    /// connection is kept.
    fn release_connection(self: Arc<Self>, mut connection: Option<ApiConnection<S>>) {
        loop {
            let mut state = self.lock_state();
            let Some(next) = state.waiters.pop_front() else {
                state.in_use -= 1;
                let has_capacity = state.idle.len() + state.in_use < self.max_connections;
                if has_capacity && !state.is_closed {
                    state.idle.extend(connection.take());
                }
                // One that is closed here is closed without the lock.
                drop(state);
                return;
            };
            drop(state);
            match next.offer_lease(Lease { pool: Some(self.clone()), connection }) {
                None => return,
                Some(mut returned) => {
                    returned.pool = None;
                    connection = returned.connection.take();
                }
            }
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, PoolState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Drop for Lease<S> {
    fn drop(&mut self) {
        drop(self.connection.take());
        if let Some(pool) = self.pool.take() {
            pool.release_connection(None);
        }
    }
}

impl<S: SocketIo> Lease<S> {
    /// Gives the connection back for another request.
    pub fn retain_connection(mut self) {
        if let Some(connection) = &mut self.connection {
            connection.mark_idle();
        }
        if let Some(pool) = self.pool.take() {
            pool.release_connection(self.connection.take());
        }
    }

    /// Closes the connection if it is not good for this.
    pub fn validate_connection(&mut self, requirements: ReuseRequirements<'_>) {
        if self.connection.as_mut().is_some_and(|connection| !requirements.are_met_by(connection)) {
            self.connection = None;
        }
    }
}

impl ReuseRequirements<'_> {
    fn are_met_by<S: SocketIo>(&self, connection: &mut ApiConnection<S>) -> bool {
        self.may_reuse
            && (connection.is_local || !is_loopback_only())
            && !(self.must_be_recent && connection.is_stale())
            && self.ban.permits_reuse(connection.idle_state())
    }
}

impl<S> Waiter<S> {
    /// Gives what was waited for; gives it back where nobody waits any more.
    fn offer_lease(&self, lease: Lease<S>) -> Option<Lease<S>> {
        let mut state = self.lock_state();
        if matches!(*state, WaiterState::Done) {
            return Some(lease);
        }
        *state = WaiterState::Ready(lease);
        drop(state);
        (self.wake)();
        None
    }

    /// What was waited for, once it has come.
    pub fn take_lease(&self) -> Option<Lease<S>> {
        let mut state = self.lock_state();
        match std::mem::replace(&mut *state, WaiterState::Done) {
            WaiterState::Ready(lease) => Some(lease),
            previous => {
                *state = previous;
                None
            }
        }
    }

    /// Waits no more.
    pub fn cancel(&self) {
        let previous = std::mem::replace(&mut *self.lock_state(), WaiterState::Done);
        // Whoever is next gets it, which asks this ticket no more.
        drop(previous);
    }

    fn lock_state(&self) -> MutexGuard<'_, WaiterState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
