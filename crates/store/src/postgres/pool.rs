//! Connections for reading, of which there are so many and no more.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::server::{Server, ServerSession};
use super::tables::PostgresReader;
use crate::{StorageFault, StoreError, StoreResult, View};

/// How many there are at most.
pub(super) const MAX_READERS: usize = 8;
/// How long is waited for one that others use.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// What holds for statements that read. Indexes are used however small a table was when a statement was
/// planned.
const SETTINGS: &str = "SET search_path = ginnel; SET statement_timeout = '10s';
    SET idle_in_transaction_session_timeout = '10s'; SET jit = off; SET enable_seqscan = off";

/// Connections for reading.
pub(super) struct ReaderPool {
    server: Server,
    state: Mutex<ReaderPoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct ReaderPoolState {
    idle: Vec<ServerSession>,
    /// How many there are, idle and in use.
    count: usize,
    closed: bool,
}

/// Why nothing can be read for the moment.
pub(super) fn pool_exhausted_error() -> StoreError {
    let problem = format!("all {MAX_READERS} connections for reading are in use");
    StoreError::Server { fault: Some(StorageFault::Timeout), problem }
}

impl ReaderPool {
    pub(super) fn new(server: Server) -> Self {
        Self { server, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Reads from one state of the database.
    pub(super) fn read(&self, work: &mut dyn FnMut(&View<'_>)) -> StoreResult<()> {
        let reader = PostgresReader::new(self)?;
        work(&View::from_tables(&reader));
        Ok(())
    }

    /// Takes a connection, which is given back with [`ReaderPool::return_session`].
    pub(super) fn take_session(&self) -> StoreResult<ServerSession> {
        let is_full = |state: &mut ReaderPoolState| {
            !state.closed && state.idle.is_empty() && state.count >= MAX_READERS
        };
        let waited = self.returned.wait_timeout_while(self.lock_state(), WAIT_TIMEOUT, is_full);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(StoreError::Closed);
        }
        if waited.timed_out() {
            return Err(pool_exhausted_error());
        }
        while let Some(session) = state.idle.pop() {
            if !session.is_closed() {
                return Ok(session);
            }
            state.count -= 1;
        }
        state.count += 1;
        drop(state);
        self.connect().inspect_err(|_| self.return_session(None))
    }

    /// Makes a connection in place of one that was taken and is gone.
    pub(super) fn connect(&self) -> StoreResult<ServerSession> {
        Ok(self.server.connect(SETTINGS)?)
    }

    /// Gives back a connection; none where it is gone.
    pub(super) fn return_session(&self, session: Option<ServerSession>) {
        let mut state = self.lock_state();
        match session.filter(|session| !state.closed && !session.is_closed()) {
            Some(session) => state.idle.push(session),
            None => state.count = state.count.saturating_sub(1),
        }
        self.returned.notify_one();
    }

    /// Closes what is idle; what is in use closes when it is given back.
    pub(super) fn close(&self) {
        let mut state = self.lock_state();
        state.closed = true;
        state.idle.clear();
        self.returned.notify_all();
    }

    fn lock_state(&self) -> MutexGuard<'_, ReaderPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
