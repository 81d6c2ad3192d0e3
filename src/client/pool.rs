//! The connections of a client: which are idle, how many there are, and who waits for one.
//!
//! Whoever comes when there are as many as there may be waits in line, and is served in the order of
//! coming, whichever driver drives the call. No I/O but the look at a connection before it is used again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::Connection;
use super::socket::Transport;
use crate::reuse::ReuseBan;

/// The connections of one client over one kind of socket.
#[derive(Debug)]
pub(super) struct Pool<S> {
    line: Mutex<Line<S>>,
    max_connections: usize,
}

#[derive(Debug)]
struct Line<S> {
    /// The last used one last.
    idle: Vec<Connection<S>>,
    /// How many are in use, or being opened.
    in_use: usize,
    waiting: VecDeque<Arc<Ticket<S>>>,
    is_closed: bool,
}

/// A place in the line.
pub(super) struct Ticket<S> {
    turn: Mutex<Turn<S>>,
    /// Called when the turn has come, on the thread of whoever gives it.
    notify: Box<dyn Fn() + Send + Sync>,
}

impl<S> std::fmt::Debug for Ticket<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

enum Turn<S> {
    Waits,
    Comes(Lease<S>),
    /// Nobody waits any more, or it was taken.
    Over,
}

/// The right to one connection; dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Lease<S> {
    /// None once the right was given on.
    pool: Option<Arc<Pool<S>>>,
    /// None while it has to be opened.
    pub connection: Option<Connection<S>>,
}

/// How a call gets its connection.
pub(super) enum Grant<S> {
    /// At once; it may have to be opened.
    Lease(Lease<S>),
    /// In its turn.
    Ticket(Arc<Ticket<S>>),
}

/// What a call needs of a connection that was used before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs<'a> {
    pub ban: &'a ReuseBan,
    /// Whether it may have been used at all.
    pub may_reuse: bool,
    /// Whether it must have been used lately, as the request is not sent twice.
    pub must_be_fresh: bool,
}

impl<S: Transport> Pool<S> {
    pub fn new(max_connections: usize) -> Arc<Self> {
        let (idle, waiting) = (Vec::new(), VecDeque::new());
        let line = Mutex::new(Line { idle, in_use: 0, waiting, is_closed: false });
        Arc::new(Self { line, max_connections })
    }

    /// A connection, or a place in the line.
    pub fn request(
        self: &Arc<Self>,
        needs: Needs<'_>,
        notify: impl FnOnce() -> Box<dyn Fn() + Send + Sync>,
    ) -> Grant<S> {
        let mut line = self.lock();
        if line.in_use >= self.max_connections {
            let ticket = Arc::new(Ticket { turn: Mutex::new(Turn::Waits), notify: notify() });
            line.waiting.push_back(ticket.clone());
            return Grant::Ticket(ticket);
        }
        line.in_use += 1;
        drop(line);
        let connection = self.take_idle(needs);
        Grant::Lease(Lease { pool: Some(self.clone()), connection })
    }

    /// An idle connection that is good for this; those that are good for nothing are closed.
    fn take_idle(&self, needs: Needs<'_>) -> Option<Connection<S>> {
        let next = || if needs.may_reuse { self.lock().idle.pop() } else { None };
        while let Some(mut connection) = next() {
            if needs.suits(&mut connection) {
                return Some(connection);
            }
        }
        let mut line = self.lock();
        let is_full = line.idle.len() + line.in_use > self.max_connections;
        let oldest = is_full.then(|| line.idle.remove(0));
        drop(line);
        drop(oldest);
        None
    }
}

impl<S> Pool<S> {
    /// Closes the idle connections, and keeps none from now on. Who waits in line learns of it.
    pub fn close(&self) {
        let mut line = self.lock();
        line.is_closed = true;
        let (idle, waiting) = (std::mem::take(&mut line.idle), std::mem::take(&mut line.waiting));
        drop(line);
        drop(idle);
        for ticket in waiting {
            ticket.cancel();
            (ticket.notify)();
        }
    }

    /// Gives the right to a connection to who has waited for longest. Where nobody waits, the
    /// connection is kept.
    fn pass_on(self: Arc<Self>, mut connection: Option<Connection<S>>) {
        loop {
            let mut line = self.lock();
            let Some(next) = line.waiting.pop_front() else {
                line.in_use -= 1;
                let has_room = line.idle.len() + line.in_use < self.max_connections;
                if has_room && !line.is_closed {
                    line.idle.extend(connection.take());
                }
                // One that is closed here is closed without the lock.
                drop(line);
                return;
            };
            drop(line);
            match next.give(Lease { pool: Some(self.clone()), connection }) {
                None => return,
                Some(mut back) => {
                    back.pool = None;
                    connection = back.connection.take();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line<S>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Drop for Lease<S> {
    fn drop(&mut self) {
        drop(self.connection.take());
        if let Some(pool) = self.pool.take() {
            pool.pass_on(None);
        }
    }
}

impl<S: Transport> Lease<S> {
    /// Gives the connection back for another request.
    pub fn keep(mut self) {
        if let Some(connection) = &mut self.connection {
            connection.rest();
        }
        if let Some(pool) = self.pool.take() {
            pool.pass_on(self.connection.take());
        }
    }

    /// Closes the connection if it is not good for this.
    pub fn check(&mut self, needs: Needs<'_>) {
        if self.connection.as_mut().is_some_and(|connection| !needs.suits(connection)) {
            self.connection = None;
        }
    }
}

impl Needs<'_> {
    fn suits<S: Transport>(&self, connection: &mut Connection<S>) -> bool {
        self.may_reuse
            && !(self.must_be_fresh && connection.is_old())
            && self.ban.permits(connection.idle_state())
    }
}

impl<S> Ticket<S> {
    /// Gives what was waited for; gives it back where nobody waits any more.
    fn give(&self, lease: Lease<S>) -> Option<Lease<S>> {
        let mut turn = self.lock();
        if matches!(*turn, Turn::Over) {
            return Some(lease);
        }
        *turn = Turn::Comes(lease);
        drop(turn);
        (self.notify)();
        None
    }

    /// What was waited for, once it has come.
    pub fn take(&self) -> Option<Lease<S>> {
        let mut turn = self.lock();
        match std::mem::replace(&mut *turn, Turn::Over) {
            Turn::Comes(lease) => Some(lease),
            before => {
                *turn = before;
                None
            }
        }
    }

    /// Waits no more.
    pub fn cancel(&self) {
        let before = std::mem::replace(&mut *self.lock(), Turn::Over);
        // Whoever is next gets it, which asks this ticket no more.
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Turn<S>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
