//! A connection whose statements end in time.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::StoreResult;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// How long one statement may run. A damaged table may have no end.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How many steps of SQLite's machine pass between two looks at the clock.
const STEPS_BETWEEN_CHECKS: i32 = 50_000;
/// How long is slept between two looks at a lock.
const BUSY_INTERVAL: Duration = Duration::from_millis(5);

/// The one connection of a database in memory; none once it is closed.
pub(crate) type SharedDatabase = Arc<Mutex<Option<Database>>>;

/// A connection whose statements end in time.
pub(crate) struct Database {
    connection: Connection,
    opened: Instant,
    /// When the current statement must have ended, in milliseconds after `opened`.
    deadline: Arc<AtomicU64>,
}

impl Deref for Database {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Database {
    pub(super) fn new(mut connection: Connection) -> StoreResult<Self> {
        let (opened, deadline) = (Instant::now(), Arc::new(AtomicU64::new(u64::MAX)));
        let watched = deadline.clone();
        let expired = move || to_millis(opened.elapsed()) > watched.load(Ordering::Relaxed);
        connection.progress_handler(STEPS_BETWEEN_CHECKS, Some(expired))?;
        // A log that is not whole would destroy the file: whoever closes says that it may be moved.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(Self { connection, opened, deadline })
    }

    /// Gives the next statement its time.
    pub(super) fn start_timeout(&self) {
        let deadline = self.opened.elapsed() + STATEMENT_TIMEOUT;
        self.deadline.store(to_millis(deadline), Ordering::Relaxed);
    }

    /// Lets the time of the current statement be over.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.deadline.store(0, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }

    /// Has statements wait for the lock of another program, until `closing` is set.
    pub(super) fn wait_for_lock(
        &mut self,
        timeout: Duration,
        closing: Arc<AtomicBool>,
    ) -> StoreResult<()> {
        let mut began = Instant::now();
        let wait = move |tries| {
            if tries == 0 {
                began = Instant::now();
            }
            std::thread::sleep(BUSY_INTERVAL);
            !closing.load(Ordering::Acquire) && began.elapsed() < timeout
        };
        Ok(self.connection.busy_handler(Some(wait))?)
    }

    /// How many frames the log has, as SQLite knows without a look at the log.
    pub(super) fn log_frames(&self) -> StoreResult<u64> {
        let frames: i64 =
            self.connection.query_row("PRAGMA wal_checkpoint(NOOP)", (), |row| row.get(1))?;
        // Negative where there is no log.
        Ok(u64::try_from(frames).unwrap_or(0))
    }

    /// Closes the connection; the last one of a file moves the log into it.
    pub(super) fn close(self) -> StoreResult<()> {
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        self.connection.close().map_err(|(_, error)| error.into())
    }
}

/// Runs a statement without parameters; it stays prepared.
pub(super) fn execute_statement(database: &Database, sql: &str) -> Result<(), rusqlite::Error> {
    database.start_timeout();
    database.prepare_cached(sql)?.execute(()).map(drop)
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
