//! A connection whose statements end in time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Error;

/// How long one statement may run. A damaged table may have no end.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How many steps of SQLite's machine pass between two looks at the clock.
const STEPS_BETWEEN_CHECKS: i32 = 50_000;

/// A connection whose statements end in time.
pub(super) struct Database {
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
    pub(super) fn new(mut connection: Connection) -> Result<Self, Error> {
        let (opened, deadline) = (Instant::now(), Arc::new(AtomicU64::new(u64::MAX)));
        let watched = deadline.clone();
        let expired = move || millis(opened.elapsed()) > watched.load(Ordering::Relaxed);
        connection.progress_handler(STEPS_BETWEEN_CHECKS, Some(expired))?;
        Ok(Self { connection, opened, deadline })
    }

    /// Gives the next statement its time.
    pub(super) fn start_timeout(&self) {
        let deadline = self.opened.elapsed() + STATEMENT_TIMEOUT;
        self.deadline.store(millis(deadline), Ordering::Relaxed);
    }

    /// Lets the time of the current statement be over.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.deadline.store(0, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }

    /// Closes the connection; the last one of a file moves the log into it.
    pub(super) fn close(self) -> Result<(), Error> {
        self.connection.close().map_err(|(_, error)| error.into())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
