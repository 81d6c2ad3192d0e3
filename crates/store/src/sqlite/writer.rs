//! Commits to SQLite.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ginnel_api::id::Ids;
use ginnel_base::logging::or_debug;

use super::database::{Database, SharedDatabase, execute_statement};
use super::open::BUSY_TIMEOUT;
use super::place::DatabaseFile;
use super::state;
use super::tables::SqliteTables;
use crate::batch_error::BatchError;
use crate::health::Health;
use crate::writer::{Batch, Committer, QueuedJob, WriterShared};
use crate::{StorageFault, StoreError, StoreResult, Transaction};

/// How many frames the log has when it is first moved into the file, as far as readers allow.
const MIN_CHECKPOINT_FRAMES: u64 = 1000;
/// How large the log may grow before readers are waited for, so that it can begin anew.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// How long they are waited for. A reader of another program may stay for longer: then it is tried
/// again when the log has grown by as much again.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Commits to a database of SQLite.
pub(crate) struct SqliteCommitter {
    connection: WriterConnection,
    ids: Ids,
}

/// The connection that the writer uses.
pub(super) enum WriterConnection {
    /// Its own, to a file.
    Own(Box<Own>),
    /// The only one of a database in memory, taken for a batch at a time.
    Shared(SharedDatabase),
}

/// A connection of its own, to a file.
pub(super) struct Own {
    database: Database,
    place: Arc<DatabaseFile>,
    /// Set when locks of other programs are waited for no longer.
    closing: Arc<AtomicBool>,
    /// The frames of the log as of the last commit.
    log_frames: u64,
    /// The size of the log as of the last commit.
    log_bytes: u64,
    /// The size of the log at which readers are waited for.
    max_log_bytes: u64,
}

impl SqliteCommitter {
    /// Commits over a connection; locks of other programs are waited for until the store closes.
    pub(super) fn new(
        connection: WriterConnection,
        ids: Ids,
        shared: &WriterShared,
    ) -> StoreResult<Self> {
        Ok(Self { connection: connection.closing_with(&shared.closing)?, ids })
    }
}

impl Committer for SqliteCommitter {
    fn commit_batch(
        &mut self,
        batch: &mut Batch<'_>,
        shared: &WriterShared,
    ) -> Result<Vec<String>, BatchError> {
        let committed = self.connection.commit_batch(&self.ids, &mut batch.jobs, &shared.health);
        shared.metrics.record_log_size(self.connection.log_bytes());
        committed
    }

    fn tidy_up(&mut self, _: &WriterShared) {
        self.connection.checkpoint_log();
    }

    fn close(self) -> Result<(), BatchError> {
        self.connection.close()
    }
}

impl WriterConnection {
    pub(super) fn from_database(database: Database, place: Arc<DatabaseFile>) -> Self {
        Self::Own(Box::new(Own {
            database,
            place,
            closing: Arc::default(),
            log_frames: 0,
            log_bytes: 0,
            max_log_bytes: MAX_LOG_BYTES,
        }))
    }

    /// Has the locks of other programs be waited for until this is set.
    fn closing_with(mut self, closing: &Arc<AtomicBool>) -> StoreResult<Self> {
        if let Self::Own(own) = &mut self {
            own.closing = closing.clone();
            own.database.wait_for_lock(BUSY_TIMEOUT, closing.clone())?;
        }
        Ok(self)
    }

    fn close(self) -> Result<(), BatchError> {
        match self {
            Self::Own(own) => own.close(),
            Self::Shared(shared) => {
                drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
                Ok(())
            }
        }
    }

    fn commit_batch(
        &mut self,
        ids: &Ids,
        batch: &mut [QueuedJob],
        health: &Health,
    ) -> Result<Vec<String>, BatchError> {
        match self {
            Self::Own(own) => own.commit_batch(ids, batch, health),
            Self::Shared(shared) => {
                match shared.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    Some(database) => commit_jobs(database, ids, batch),
                    None => Err(StoreError::Closed.into()),
                }
            }
        }
    }

    /// The size of the log as of the last commit; 0 where there is none.
    fn log_bytes(&self) -> u64 {
        match self {
            Self::Own(own) => own.log_bytes,
            Self::Shared(_) => 0,
        }
    }

    fn checkpoint_log(&mut self) {
        if let Self::Own(own) = self {
            // Where it fails, the log grows on, and this is tried again.
            or_debug!(own.checkpoint_log(), "the database's log grows on");
        }
    }
}

impl Own {
    /// Commits, and makes sure that what was committed can be found by the name of the database.
    fn commit_batch(
        &mut self,
        ids: &Ids,
        batch: &mut [QueuedJob],
        health: &Health,
    ) -> Result<Vec<String>, BatchError> {
        if health.is_read_only() {
            // Perhaps the file has its name again.
            self.check_files()?;
        }
        let changed = commit_jobs(&self.database, ids, batch)
            .map_err(|failure| self.explain_failure(failure))?;
        self.check_files()?;
        if self.log_bytes < MAX_LOG_BYTES {
            self.max_log_bytes = MAX_LOG_BYTES;
        }
        Ok(changed)
    }

    /// Makes sure that the file and its log have their names, and that the log is whole.
    fn check_files(&mut self) -> StoreResult<()> {
        self.log_bytes = self.place.check_identity()?;
        self.log_frames = self.database.log_frames()?;
        self.place.check_log(self.log_frames)
    }

    /// Why a commit failed: what SQLite finds in a log that is not whole looks like other damage.
    fn explain_failure(&mut self, failure: BatchError) -> BatchError {
        if !matches!(failure.fault, Some(StorageFault::Io | StorageFault::Damaged)) {
            return failure;
        }
        match self.check_files() {
            Err(error @ StoreError::Detached { .. }) => error.into(),
            _ => failure,
        }
    }

    fn checkpoint_log(&mut self) -> StoreResult<()> {
        if self.log_bytes > self.max_log_bytes {
            return self.restart_log();
        }
        if self.log_frames >= MIN_CHECKPOINT_FRAMES {
            self.database.start_timeout();
            self.database.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))?;
        }
        Ok(())
    }

    /// Closes the connection, which moves a log into the file that is whole.
    fn close(mut self) -> Result<(), BatchError> {
        self.check_files()?;
        self.database.start_timeout();
        state::set_closed(&self.database)?;
        Ok(self.database.close()?)
    }

    /// Moves the log into the file and begins it anew, as soon as no reader needs it.
    fn restart_log(&mut self) -> StoreResult<()> {
        self.database.wait_for_lock(CHECKPOINT_TIMEOUT, self.closing.clone())?;
        self.database.start_timeout();
        let busy = self.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        self.database.wait_for_lock(BUSY_TIMEOUT, self.closing.clone())?;
        let is_held: bool = busy?;
        self.max_log_bytes = if is_held { self.log_bytes + MAX_LOG_BYTES } else { MAX_LOG_BYTES };
        Ok(())
    }
}

/// Runs a batch in one transaction; a job that fails is undone alone. Gives what has changed.
fn commit_jobs(
    database: &Database,
    ids: &Ids,
    batch: &mut [QueuedJob],
) -> Result<Vec<String>, BatchError> {
    let outcome = run_batch(database, ids, batch);
    if outcome.is_err() && !database.is_autocommit() {
        // The error that led here is the one to report.
        or_debug!(
            execute_statement(database, "ROLLBACK"),
            "cannot take back what was not committed"
        );
    }
    outcome
}

fn run_batch(
    database: &Database,
    ids: &Ids,
    batch: &mut [QueuedJob],
) -> Result<Vec<String>, BatchError> {
    let mut changed = Vec::new();
    execute_statement(database, "BEGIN IMMEDIATE")?;
    for job in batch {
        execute_statement(database, "SAVEPOINT job")?;
        let tables = SqliteTables::from_database(database);
        let transaction = Transaction::new(&tables, ids);
        let is_made = job.job.run(&transaction);
        let of_job = transaction.into_changed();
        if is_made {
            changed.extend(of_job);
        } else if let Err(error) = execute_statement(database, "ROLLBACK TO job") {
            // The error of the job has ended the whole transaction, as a full disk does: the jobs
            // before this one are undone as well, and all are told why.
            return Err(tables.into_failure().unwrap_or_else(|| error.into()));
        }
        execute_statement(database, "RELEASE job")?;
    }
    execute_statement(database, "COMMIT")?;
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rusqlite::Connection;
    use tokio::sync::mpsc;

    use super::*;
    use crate::writer::Writer;

    fn writer(schema: &str) -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        let database = Database::new(connection).unwrap();
        let connection = WriterConnection::Shared(Arc::new(Mutex::new(Some(database))));
        Writer::start(|shared| SqliteCommitter::new(connection, Ids::default(), shared)).unwrap()
    }

    #[tokio::test]
    async fn a_failed_commit_fails_every_job_of_its_batch() {
        // A deferred foreign key is checked by COMMIT, which fails then.
        let writer = writer(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE meta (name TEXT PRIMARY KEY,
                 value TEXT REFERENCES meta (name) DEFERRABLE INITIALLY DEFERRED);",
        );
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (start, mut started) = mpsc::unbounded_channel();

        // Keeps the writer busy until the other two wait in the queue.
        let first = writer.write(move |_| {
            start.send(()).unwrap();
            held.lock().unwrap().recv().unwrap();
            Ok::<_, StoreError>(())
        });
        let others = async {
            started.recv().await.unwrap();
            let good = writer.write(|change| change.store_setting("good", "good"));
            let bad = writer.write(|change| change.store_setting("bad", "nobody"));
            tokio::join!(good, bad, async { hold.send(()).unwrap() })
        };
        let (first, (good, bad, ())) = tokio::join!(first, others);

        assert!(first.is_ok());
        assert!(matches!(good, Err(StoreError::Commit { .. })));
        assert!(matches!(bad, Err(StoreError::Commit { .. })));
        let left = writer.write(|change| change.find_setting("good")).await.unwrap();
        assert_eq!(left, None);
    }

    #[tokio::test]
    async fn a_job_that_panics_is_undone_alone() {
        let writer = writer("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);");

        let broken = writer
            .write(|change| -> StoreResult<()> {
                change.store_setting("broken", "1")?;
                std::panic::resume_unwind(Box::new("on purpose"))
            })
            .await;

        assert!(matches!(broken, Err(StoreError::Panicked)));
        assert_eq!(writer.write(|change| change.find_setting("broken")).await.unwrap(), None);
        assert!(writer.write(|change| change.store_setting("whole", "1")).await.is_ok());
    }

    #[tokio::test]
    async fn closing_answers_what_was_handed_in() {
        let writer = writer("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);");

        let mut waiting: Vec<_> = (0..100)
            .map(|n| Box::pin(writer.write(move |change| change.store_setting(&n.to_string(), ""))))
            .collect();
        for one in &mut waiting {
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(one.as_mut().poll(cx)));
            assert!(!matches!(polled.await, std::task::Poll::Ready(Err(_))));
        }
        writer.close();

        assert!(matches!(
            writer.write(|c| c.store_setting("late", "")).await,
            Err(StoreError::Closed)
        ));
    }
}
