//! The one thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::batch_error::BatchError;
use super::database::Database;
use super::health::Health;
use super::metrics::WriterMetrics;
use super::open::BUSY_TIMEOUT;
use super::place::DatabaseFile;
use super::view::execute;
use super::{StorageFault, StoreError, Transaction, state};
use crate::api::id::Ids;
use crate::logging::{ignore, or_debug};

/// How many jobs share a commit at most: enough to spare `fsync`s, few enough to answer soon.
const BATCH: usize = 256;

/// How many frames the log has when it is first moved into the file, as far as readers allow.
const MIN_CHECKPOINT_FRAMES: u64 = 1000;
/// How large the log may grow before readers are waited for, so that it can begin anew.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// How long they are waited for. A reader of another program may stay for longer: then it is tried
/// again when the log has grown by as much again.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection that the writer uses.
pub(super) enum WriterConnection {
    /// Its own, to a file.
    Own(Box<Own>),
    /// The only one of a database in memory, taken for a batch at a time.
    Shared(Arc<Mutex<Option<Database>>>),
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

/// Gets the ids that a commit has changed.
type Watcher = Box<dyn Fn(&[String]) + Send + Sync>;

/// What the thread shares with others.
#[derive(Default)]
struct WriterShared {
    commits: AtomicU64,
    health: Health,
    metrics: WriterMetrics,
    /// Set when locks of other programs are waited for no longer.
    closing: Arc<AtomicBool>,
    watchers: RwLock<Vec<Watcher>>,
}

/// A handle to the thread that writes.
pub(super) struct Writer {
    shared: Arc<WriterShared>,
    jobs: Mutex<Option<mpsc::UnboundedSender<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A change that waits to be made, then to be answered.
trait Job: Send {
    /// Makes the change; false when it failed and must be undone.
    fn run(&mut self, transaction: &Transaction<'_>) -> bool;
    /// Answers the caller, who may have gone.
    fn answer(self: Box<Self>, committed: Result<(), BatchError>);
}

/// A job with the types of its caller.
struct TypedJob<W, T, E> {
    work: Option<W>,
    /// None until the change is made.
    result: Option<Result<T, E>>,
    caller: oneshot::Sender<Result<T, E>>,
}

impl<W, T, E> Job for TypedJob<W, T, E>
where
    W: FnOnce(&Transaction<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> bool {
        if let Some(work) = self.work.take() {
            let result = catch_unwind(AssertUnwindSafe(|| work(transaction)));
            self.result = Some(result.unwrap_or_else(|_| Err(StoreError::Panicked.into())));
        }
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<(), BatchError>) {
        let result = match (committed, self.result) {
            // A refusal as well: it may rest on a change of the same batch that is not stored.
            (Err(failure), _) => Err(StoreError::from(failure).into()),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(StoreError::Closed.into()),
        };
        ignore(self.caller.send(result), "a caller who has gone needs no response");
    }
}

impl Writer {
    pub(super) fn start(target: WriterConnection, ids: Ids) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(WriterShared::default());
        let telling = shared.clone();
        let target = target.closing_with(&shared.closing)?;
        let thread = std::thread::Builder::new()
            .name("ginnel-writer".to_owned())
            .spawn(move || work_off(target, &ids, queue, &telling))
            .map_err(|source| StoreError::File { path: "writer thread".into(), source })?;
        Ok(Self { shared, jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn write<T, E>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        self.hand_in(Box::new(TypedJob { work: Some(work), result: None, caller }))?;
        answer.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }

    pub(super) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> &Health {
        &self.shared.health
    }

    pub(super) fn metrics(&self) -> &WriterMetrics {
        &self.shared.metrics
    }

    pub(super) fn watch(&self, watcher: Watcher) {
        self.shared.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    fn hand_in(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(StoreError::Closed)
    }

    /// Has what waits for the lock of another program fail, now and later.
    pub(super) fn end_lock_waits(&self) {
        self.shared.closing.store(true, Ordering::Release);
    }

    /// Waits until everything handed in is answered, then closes the connection.
    pub(super) fn close(&self) {
        self.end_lock_waits();
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread catches the panics of jobs.
            ignore(thread.join(), "a panic of its own has been reported by then");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn work_off(
    mut target: WriterConnection,
    ids: &Ids,
    mut queue: mpsc::UnboundedReceiver<Box<dyn Job>>,
    shared: &WriterShared,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let began = Instant::now();
        let committed = target.commit(ids, &mut batch, &shared.health);
        shared.metrics.committed(batch.len(), began.elapsed());
        shared.metrics.note_log(target.log_bytes());
        shared.health.note(&committed);
        // Before anyone hears of the change, so that nobody who has heard of it trusts older reads.
        shared.commits.fetch_add(1, Ordering::Release);
        if let Ok(changed) = &committed {
            shared.tell(changed);
        }
        let committed = committed.map(drop).map_err(|failure| shared.explain(failure));
        for job in batch.drain(..) {
            job.answer(committed.clone());
        }
        if committed.is_ok() {
            target.bound_log();
        }
    }
    if let Err(failure) = target.close() {
        shared.health.note::<()>(&Err(failure));
    }
}

impl WriterConnection {
    pub(super) fn own(database: Database, place: Arc<DatabaseFile>) -> Self {
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
    fn closing_with(mut self, closing: &Arc<AtomicBool>) -> Result<Self, StoreError> {
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

    fn commit(
        &mut self,
        ids: &Ids,
        batch: &mut [Box<dyn Job>],
        health: &Health,
    ) -> Result<Vec<String>, BatchError> {
        match self {
            Self::Own(own) => own.commit(ids, batch, health),
            Self::Shared(shared) => {
                match shared.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    Some(database) => commit(database, ids, batch),
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

    fn bound_log(&mut self) {
        if let Self::Own(own) = self {
            // Where it fails, the log grows on, and this is tried again.
            or_debug!(own.bound_log(), "the database's log grows on");
        }
    }
}

impl Own {
    /// Commits, and makes sure that what was committed can be found by the name of the database.
    fn commit(
        &mut self,
        ids: &Ids,
        batch: &mut [Box<dyn Job>],
        health: &Health,
    ) -> Result<Vec<String>, BatchError> {
        if health.is_read_only() {
            // Perhaps the file has its name again.
            self.check()?;
        }
        let changed =
            commit(&self.database, ids, batch).map_err(|failure| self.explain(failure))?;
        self.check()?;
        if self.log_bytes < MAX_LOG_BYTES {
            self.max_log_bytes = MAX_LOG_BYTES;
        }
        Ok(changed)
    }

    /// Makes sure that the file and its log have their names, and that the log is whole.
    fn check(&mut self) -> Result<(), StoreError> {
        self.log_bytes = self.place.check()?;
        self.log_frames = self.database.log_frames()?;
        self.place.check_log(self.log_frames)
    }

    /// Why a commit failed: what SQLite finds in a log that is not whole looks like other damage.
    fn explain(&mut self, failure: BatchError) -> BatchError {
        if !matches!(failure.fault, Some(StorageFault::Io | StorageFault::Damaged)) {
            return failure;
        }
        match self.check() {
            Err(error @ StoreError::Detached { .. }) => error.into(),
            _ => failure,
        }
    }

    fn bound_log(&mut self) -> Result<(), StoreError> {
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
        self.check()?;
        self.database.start_timeout();
        state::set_closed(&self.database)?;
        Ok(self.database.close()?)
    }

    /// Moves the log into the file and begins it anew, as soon as no reader needs it.
    fn restart_log(&mut self) -> Result<(), StoreError> {
        self.database.wait_for_lock(CHECKPOINT_TIMEOUT, self.closing.clone())?;
        self.database.start_timeout();
        let busy = self.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        self.database.wait_for_lock(BUSY_TIMEOUT, self.closing.clone())?;
        let is_held: bool = busy?;
        self.max_log_bytes = if is_held { self.log_bytes + MAX_LOG_BYTES } else { MAX_LOG_BYTES };
        Ok(())
    }
}

impl WriterShared {
    /// Why a batch was not stored, for its callers: a lock is not waited for while this is closing.
    fn explain(&self, failure: BatchError) -> BatchError {
        let is_locked = failure.fault == Some(StorageFault::Locked);
        if is_locked && self.closing.load(Ordering::Acquire) {
            return StoreError::Closed.into();
        }
        failure
    }

    fn tell(&self, changed: &[String]) {
        if changed.is_empty() {
            return;
        }
        for watcher in self.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // The change is made whatever becomes of those who hear of it.
            if catch_unwind(AssertUnwindSafe(|| watcher(changed))).is_err() {
                tracing::error!("what follows changes of the database panicked");
            }
        }
    }
}

/// Runs a batch in one transaction; a job that fails is undone alone. Gives what has changed.
fn commit(
    database: &Database,
    ids: &Ids,
    batch: &mut [Box<dyn Job>],
) -> Result<Vec<String>, BatchError> {
    let outcome = run(database, ids, batch);
    if outcome.is_err() && !database.is_autocommit() {
        // The error that led here is the one to report.
        or_debug!(execute(database, "ROLLBACK"), "cannot take back what was not committed");
    }
    outcome
}

fn run(
    database: &Database,
    ids: &Ids,
    batch: &mut [Box<dyn Job>],
) -> Result<Vec<String>, BatchError> {
    let mut changed = Vec::new();
    execute(database, "BEGIN IMMEDIATE")?;
    for job in batch {
        execute(database, "SAVEPOINT job")?;
        let transaction = Transaction::new(database, ids);
        if job.run(&transaction) {
            changed.extend(transaction.into_changed());
        } else if let Err(error) = execute(database, "ROLLBACK TO job") {
            // The error of the job has ended the whole transaction, as a full disk does: the jobs
            // before this one are undone as well, and all are told why.
            return Err(transaction.into_failure().unwrap_or_else(|| error.into()));
        }
        execute(database, "RELEASE job")?;
    }
    execute(database, "COMMIT")?;
    Ok(changed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rusqlite::Connection;

    use super::*;

    fn writer(schema: &str) -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        let database = Database::new(connection).unwrap();
        Writer::start(
            WriterConnection::Shared(Arc::new(Mutex::new(Some(database)))),
            Ids::default(),
        )
        .unwrap()
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
        let (start, started) = oneshot::channel();

        // Keeps the writer busy until the other two wait in the queue.
        let first = writer.write(move |_| {
            start.send(()).unwrap();
            held.recv().unwrap();
            Ok::<_, StoreError>(())
        });
        let others = async {
            started.await.unwrap();
            let good = writer.write(|change| change.set("good", "good"));
            let bad = writer.write(|change| change.set("bad", "nobody"));
            tokio::join!(good, bad, async { hold.send(()).unwrap() })
        };
        let (first, (good, bad, ())) = tokio::join!(first, others);

        assert!(first.is_ok());
        assert!(matches!(good, Err(StoreError::Commit { .. })));
        assert!(matches!(bad, Err(StoreError::Commit { .. })));
        let left = writer.write(|change| change.setting("good")).await.unwrap();
        assert_eq!(left, None);
    }

    #[tokio::test]
    async fn a_job_that_panics_is_undone_alone() {
        let writer = writer("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);");

        let broken = writer
            .write(|change| -> Result<(), StoreError> {
                change.set("broken", "1")?;
                std::panic::resume_unwind(Box::new("on purpose"))
            })
            .await;

        assert!(matches!(broken, Err(StoreError::Panicked)));
        assert_eq!(writer.write(|change| change.setting("broken")).await.unwrap(), None);
        assert!(writer.write(|change| change.set("whole", "1")).await.is_ok());
    }

    #[tokio::test]
    async fn closing_answers_what_was_handed_in() {
        let writer = writer("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);");

        let mut waiting: Vec<_> = (0..100)
            .map(|n| Box::pin(writer.write(move |change| change.set(&n.to_string(), ""))))
            .collect();
        for one in &mut waiting {
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(one.as_mut().poll(cx)));
            assert!(!matches!(polled.await, std::task::Poll::Ready(Err(_))));
        }
        writer.close();

        assert!(matches!(writer.write(|c| c.set("late", "")).await, Err(StoreError::Closed)));
    }
}
