//! The one thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::database::Database;
use super::health::Health;
use super::open::BUSY_TIMEOUT;
use super::place::Place;
use super::view::execute;
use super::{Error, StorageFault, Transaction};
use crate::api::id::Ids;

/// How many jobs share a commit at most: enough to spare `fsync`s, few enough to answer soon.
const BATCH: usize = 256;

/// How large the log may grow before readers are waited for, so that it can begin anew.
const MAX_LOG_BYTES: u64 = 16 << 20;
/// How long they are waited for. A reader of another program may stay for longer: then it is tried
/// again when the log has grown by as much again.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection that the writer uses.
pub(super) enum Target {
    /// Its own, to a file.
    Own(Box<Own>),
    /// The only one of a database in memory, taken for a batch at a time.
    Shared(Arc<Mutex<Option<Database>>>),
}

/// A connection of its own, to a file.
pub(super) struct Own {
    database: Database,
    place: Arc<Place>,
    /// The size of the log as of the last commit.
    log_bytes: u64,
    /// The size of the log at which readers are waited for.
    max_log_bytes: u64,
}

/// Why a batch was not stored, for each of its jobs.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub fault: Option<StorageFault>,
    pub problem: String,
    /// The file that has lost its name.
    pub file: Option<PathBuf>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (fault, problem) = (error.fault(), error.to_string());
        let file = match error {
            Error::Detached { path, .. } => Some(path),
            _ => None,
        };
        Self { fault, problem, file }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Failure> for Error {
    fn from(Failure { fault, problem, .. }: Failure) -> Self {
        Self::Commit { fault, problem }
    }
}

/// Is told what every commit has changed.
type Watcher = Box<dyn Fn(&[String]) + Send + Sync>;

/// What the thread tells others.
#[derive(Default)]
struct Told {
    commits: AtomicU64,
    health: Health,
    watchers: RwLock<Vec<Watcher>>,
}

/// A handle to the thread that writes.
pub(super) struct Writer {
    told: Arc<Told>,
    jobs: Mutex<Option<mpsc::UnboundedSender<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A change that waits to be made, then to be answered.
trait Job: Send {
    /// Makes the change; false when it failed and must be undone.
    fn run(&mut self, transaction: &Transaction<'_>) -> bool;
    /// Answers the caller, who may have gone.
    fn answer(self: Box<Self>, committed: Result<(), Failure>);
}

/// A job with the types of its caller.
struct Change<W, T, E> {
    work: Option<W>,
    /// None until the change is made.
    result: Option<Result<T, E>>,
    caller: oneshot::Sender<Result<T, E>>,
}

impl<W, T, E> Job for Change<W, T, E>
where
    W: FnOnce(&Transaction<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> bool {
        if let Some(work) = self.work.take() {
            let result = catch_unwind(AssertUnwindSafe(|| work(transaction)));
            self.result = Some(result.unwrap_or_else(|_| Err(Error::Panicked.into())));
        }
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, committed: Result<(), Failure>) {
        let result = match (committed, self.result) {
            // A refusal as well: it may rest on a change of the same batch that is not stored.
            (Err(failure), _) => Err(Error::from(failure).into()),
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(Error::Closed.into()),
        };
        // A caller who has gone needs no answer.
        let _ = self.caller.send(result);
    }
}

impl Writer {
    pub(super) fn start(target: Target, ids: Ids) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let told = Arc::new(Told::default());
        let telling = told.clone();
        let thread = std::thread::Builder::new()
            .name("ginnel-writer".to_owned())
            .spawn(move || work_off(target, &ids, queue, &telling))
            .map_err(|source| Error::File { path: "writer thread".into(), source })?;
        Ok(Self { told, jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn write<T, E>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (caller, answer) = oneshot::channel();
        self.hand_in(Box::new(Change { work: Some(work), result: None, caller }))?;
        answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
    }

    pub(super) fn commits(&self) -> u64 {
        self.told.commits.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> &Health {
        &self.told.health
    }

    pub(super) fn watch(&self, watcher: Watcher) {
        self.told.watchers.write().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    fn hand_in(&self, job: Box<dyn Job>) -> Result<(), Error> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(Error::Closed)
    }

    /// Waits until everything handed in is answered, then closes the connection.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread catches the panics of jobs; one of its own has been reported by then.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn work_off(
    mut target: Target,
    ids: &Ids,
    mut queue: mpsc::UnboundedReceiver<Box<dyn Job>>,
    told: &Told,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let committed = target.commit(ids, &mut batch, &told.health);
        told.health.note(&committed);
        // Before anyone hears of the change, so that nobody who has heard of it trusts older reads.
        told.commits.fetch_add(1, Ordering::Release);
        if let Ok(changed) = &committed {
            told.tell(changed);
        }
        let committed = committed.map(drop);
        for job in batch.drain(..) {
            job.answer(committed.clone());
        }
        target.bound_log();
    }
    if let Target::Shared(shared) = &target {
        drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Target {
    pub(super) fn own(database: Database, place: Arc<Place>) -> Self {
        Self::Own(Box::new(Own { database, place, log_bytes: 0, max_log_bytes: MAX_LOG_BYTES }))
    }

    fn commit(
        &mut self,
        ids: &Ids,
        batch: &mut [Box<dyn Job>],
        health: &Health,
    ) -> Result<Vec<String>, Failure> {
        match self {
            Self::Own(own) => own.commit(ids, batch, health),
            Self::Shared(shared) => {
                match shared.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    Some(database) => commit(database, ids, batch),
                    None => Err(Error::Closed.into()),
                }
            }
        }
    }

    fn bound_log(&mut self) {
        if let Self::Own(own) = self
            && own.log_bytes > own.max_log_bytes
        {
            // The log grows on, and this is tried again.
            let _ = own.restart_log();
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
    ) -> Result<Vec<String>, Failure> {
        if health.is_read_only() {
            // Perhaps the file has its name again.
            self.place.check()?;
        }
        let changed = commit(&self.database, ids, batch)?;
        self.log_bytes = self.place.check()?;
        if self.log_bytes < MAX_LOG_BYTES {
            self.max_log_bytes = MAX_LOG_BYTES;
        }
        Ok(changed)
    }

    /// Moves the log into the file and begins it anew, as soon as no reader needs it.
    fn restart_log(&mut self) -> Result<(), Error> {
        self.database.busy_timeout(CHECKPOINT_TIMEOUT)?;
        self.database.start_timeout();
        let busy = self.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        self.database.busy_timeout(BUSY_TIMEOUT)?;
        let is_held: bool = busy?;
        self.max_log_bytes = if is_held { self.log_bytes + MAX_LOG_BYTES } else { MAX_LOG_BYTES };
        Ok(())
    }
}

impl Told {
    fn tell(&self, changed: &[String]) {
        if changed.is_empty() {
            return;
        }
        for watcher in self.watchers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // The change is made whatever becomes of those who hear of it.
            let _ = catch_unwind(AssertUnwindSafe(|| watcher(changed)));
        }
    }
}

/// Runs a batch in one transaction; a job that fails is undone alone. Gives what has changed.
fn commit(
    database: &Database,
    ids: &Ids,
    batch: &mut [Box<dyn Job>],
) -> Result<Vec<String>, Failure> {
    let outcome = run(database, ids, batch);
    if outcome.is_err() && !database.is_autocommit() {
        // The error that led here is the one to report.
        let _ = execute(database, "ROLLBACK");
    }
    outcome
}

fn run(database: &Database, ids: &Ids, batch: &mut [Box<dyn Job>]) -> Result<Vec<String>, Failure> {
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
        Writer::start(Target::Shared(Arc::new(Mutex::new(Some(database)))), Ids::default()).unwrap()
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
            Ok::<_, Error>(())
        });
        let others = async {
            started.await.unwrap();
            let good = writer.write(|change| change.set("good", "good"));
            let bad = writer.write(|change| change.set("bad", "nobody"));
            tokio::join!(good, bad, async { hold.send(()).unwrap() })
        };
        let (first, (good, bad, ())) = tokio::join!(first, others);

        assert!(first.is_ok());
        assert!(matches!(good, Err(Error::Commit { .. })));
        assert!(matches!(bad, Err(Error::Commit { .. })));
        let left = writer.write(|change| change.setting("good")).await.unwrap();
        assert_eq!(left, None);
    }

    #[tokio::test]
    async fn a_job_that_panics_is_undone_alone() {
        let writer = writer("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT);");

        let broken = writer
            .write(|change| -> Result<(), Error> {
                change.set("broken", "1")?;
                std::panic::resume_unwind(Box::new("on purpose"))
            })
            .await;

        assert!(matches!(broken, Err(Error::Panicked)));
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

        assert!(matches!(writer.write(|c| c.set("late", "")).await, Err(Error::Closed)));
    }
}
