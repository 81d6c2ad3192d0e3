//! Connections for reading.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::database::{Database, SharedDatabase};
use super::open::BUSY_TIMEOUT;
use super::place::DatabaseFile;
use super::{BackupReport, Overwrite, open, place, tables, target};
use crate::{StoreError, StoreResult, View};

/// How many connections are kept open while nobody reads.
const KEPT: usize = 8;

/// Connections for reading; as many are in use as threads read at once.
pub(crate) enum Readers {
    /// Connections of their own to the file.
    File(Box<Pool>),
    /// The one connection of a database in memory; empty once closed.
    Shared(SharedDatabase),
}

/// Connections to one file.
pub(crate) struct Pool {
    place: Arc<DatabaseFile>,
    idle: Mutex<Idle>,
    /// Is told when a connection is given back.
    returned: Condvar,
}

/// Connections that nobody reads on.
#[derive(Default)]
struct Idle {
    connections: Vec<Database>,
    /// How many threads wait for one. To wake nobody is a system call as well, for each read.
    waiting: usize,
    closed: bool,
}

impl Readers {
    /// Opens the first connection, so that there is one to read with whatever becomes of the file.
    pub(crate) fn from_file(place: Arc<DatabaseFile>) -> StoreResult<Self> {
        let pool = Pool { place, idle: Mutex::default(), returned: Condvar::new() };
        pool.return_connection(pool.open_connection()?);
        Ok(Self::File(Box::new(pool)))
    }

    pub(crate) fn from_shared(connection: SharedDatabase) -> Self {
        Self::Shared(connection)
    }

    pub(crate) fn read(&self, work: &mut dyn FnMut(&View<'_>)) -> StoreResult<()> {
        match self {
            Self::Shared(shared) => {
                let guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let database = guard.as_ref().ok_or(StoreError::Closed)?;
                tables::run_read(database, work)
            }
            Self::File(pool) => {
                let database = pool.take_connection()?;
                let result = tables::run_read(&database, work);
                pool.return_connection(database);
                result
            }
        }
    }

    /// Copies the database to a file.
    pub(crate) fn back_up(&self, to: &Path, overwrite: Overwrite) -> StoreResult<BackupReport> {
        match self {
            Self::Shared(shared) => {
                let guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let database = guard.as_ref().ok_or(StoreError::Closed)?;
                database.start_timeout();
                target::write_copy(database, to, overwrite)
            }
            Self::File(pool) => {
                pool.place.check_identity()?;
                let path = pool.place.path();
                let written = target::write_copy(&open::open_source(path)?, to, overwrite);
                written.map_err(|error| place::translate_error(error, path))
            }
        }
    }

    /// Closes what is idle; what is in use closes when it is given back.
    pub(crate) fn close(&self) {
        if let Self::File(pool) = self {
            let mut idle = pool.lock_idle();
            idle.closed = true;
            idle.connections.clear();
        }
    }
}

impl Pool {
    fn take_connection(&self) -> StoreResult<Database> {
        let mut idle = self.lock_idle();
        if idle.closed {
            return Err(StoreError::Closed);
        }
        if let Some(database) = idle.connections.pop() {
            return Ok(database);
        }
        drop(idle);
        match self.open_connection() {
            // Those that are open still read the file that has lost its name.
            Err(StoreError::Detached { path, problem }) => {
                self.wait_for_connection().ok_or(StoreError::Detached { path, problem })
            }
            opened => opened,
        }
    }

    /// Opens a connection, which is to the same file and log as the others.
    fn open_connection(&self) -> StoreResult<Database> {
        self.place.check_identity()?;
        let database = open::open_reader(self.place.path())?;
        // Opens the log as well.
        database.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
        self.place.check_identity()?;
        Ok(database)
    }

    /// Waits for a connection to be given back; none when all are gone.
    fn wait_for_connection(&self) -> Option<Database> {
        let nobody = |idle: &mut Idle| !idle.closed && idle.connections.is_empty();
        let mut idle = self.lock_idle();
        idle.waiting += 1;
        let waited = self.returned.wait_timeout_while(idle, BUSY_TIMEOUT, nobody);
        let (mut idle, _) = waited.unwrap_or_else(PoisonError::into_inner);
        idle.waiting -= 1;
        idle.connections.pop()
    }

    fn return_connection(&self, database: Database) {
        let mut idle = self.lock_idle();
        if !idle.closed && idle.connections.len() < KEPT {
            idle.connections.push(database);
            if idle.waiting > 0 {
                self.returned.notify_one();
            }
        }
    }

    fn lock_idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
