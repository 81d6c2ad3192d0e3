//! The one thread that writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::view::execute;
use super::{Error, Transaction};
use crate::api::id::Ids;

/// How many jobs share a commit at most: enough to spare `fsync`s, few enough to answer soon.
const BATCH: usize = 256;

/// The connection that the writer uses.
pub(super) enum Target {
    /// Its own, to a file.
    Own(Connection),
    /// The only one of a database in memory, taken for a batch at a time.
    Shared(Arc<Mutex<Option<Connection>>>),
}

/// Is told what every commit has changed.
type Watcher = Box<dyn Fn(&[String]) + Send + Sync>;

/// What the thread tells others.
#[derive(Default)]
struct Told {
    commits: AtomicU64,
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
    fn answer(self: Box<Self>, committed: Result<(), String>);
}

/// A job with the types of its caller.
struct Change<W, T, E> {
    work: Option<W>,
    result: Result<T, E>,
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
            self.result = catch_unwind(AssertUnwindSafe(|| work(transaction)))
                .unwrap_or_else(|_| Err(Error::Panicked.into()));
        }
        self.result.is_ok()
    }

    fn answer(self: Box<Self>, committed: Result<(), String>) {
        let result = match committed {
            Err(problem) if self.result.is_ok() => Err(Error::Commit(problem).into()),
            _ => self.result,
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
        let result = Err(Error::Closed.into());
        self.hand_in(Box::new(Change { work: Some(work), result, caller }))?;
        answer.await.unwrap_or_else(|_| Err(Error::Closed.into()))
    }

    pub(super) fn commits(&self) -> u64 {
        self.told.commits.load(Ordering::Acquire)
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
    target: Target,
    ids: &Ids,
    mut queue: mpsc::UnboundedReceiver<Box<dyn Job>>,
    told: &Told,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let committed = match &target {
            Target::Own(connection) => commit(connection, ids, &mut batch),
            Target::Shared(shared) => {
                match shared.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    Some(connection) => commit(connection, ids, &mut batch),
                    None => Err(Error::Closed.to_string()),
                }
            }
        };
        // Before anyone hears of the change, so that nobody who has heard of it trusts older reads.
        told.commits.fetch_add(1, Ordering::Release);
        if let Ok(changed) = &committed {
            told.tell(changed);
        }
        let committed = committed.map(drop);
        for job in batch.drain(..) {
            job.answer(committed.clone());
        }
    }
    if let Target::Shared(shared) = &target {
        drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
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
    connection: &Connection,
    ids: &Ids,
    batch: &mut [Box<dyn Job>],
) -> Result<Vec<String>, String> {
    let outcome = run(connection, ids, batch);
    if outcome.is_err() && !connection.is_autocommit() {
        // The error that led here is the one to report.
        let _ = execute(connection, "ROLLBACK");
    }
    outcome.map_err(|error| error.to_string())
}

fn run(
    connection: &Connection,
    ids: &Ids,
    batch: &mut [Box<dyn Job>],
) -> Result<Vec<String>, rusqlite::Error> {
    let mut changed = Vec::new();
    execute(connection, "BEGIN IMMEDIATE")?;
    for job in batch {
        execute(connection, "SAVEPOINT job")?;
        let transaction = Transaction::new(connection, ids);
        if job.run(&transaction) {
            changed.extend(transaction.into_changed());
        } else {
            // Fails when the error ended the whole transaction, such as a full disk: then the
            // jobs before this one are undone as well, and all are told.
            execute(connection, "ROLLBACK TO job")?;
        }
        execute(connection, "RELEASE job")?;
    }
    execute(connection, "COMMIT")?;
    Ok(changed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn writer(schema: &str) -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        Writer::start(Target::Own(connection), Ids::default()).unwrap()
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
        assert!(matches!(good, Err(Error::Commit(_))));
        assert!(matches!(bad, Err(Error::Commit(_))));
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
