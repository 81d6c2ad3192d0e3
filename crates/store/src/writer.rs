//! The one thread that writes, for every engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use ginnel_base::logging::ignore;

use super::batch_error::BatchError;
use super::health::Health;
use super::job::{Job, TypedJob};
use super::metrics::WriterMetrics;
use super::{Changes, StorageFault, StoreError, StoreResult, Transaction};

/// How many jobs share a commit at most: enough to spare `fsync`s, few enough to answer soon.
const MAX_BATCH_JOBS: usize = 256;

/// Makes changes durable, on the thread that writes.
pub(super) trait Committer: Send + 'static {
    /// Runs jobs and commits what they have changed; a job that fails is undone alone. Gives the
    /// identifiers of the documents that have changed.
    fn commit_batch(
        &mut self,
        batch: &mut Batch<'_>,
        shared: &WriterShared,
    ) -> Result<Vec<String>, BatchError>;

    /// What there is to do once a commit is answered.
    fn tidy_up(&mut self, shared: &WriterShared);

    /// Ends the use of the database.
    fn close(self) -> Result<(), BatchError>;
}

/// Jobs that share a commit.
pub(super) struct Batch<'queue> {
    pub jobs: Vec<QueuedJob>,
    /// False while no others may share the commit.
    pub takes_more: bool,
    queue: &'queue mut mpsc::UnboundedReceiver<QueuedJob>,
}

impl Batch<'_> {
    /// Waits for the first job; false when there will be none.
    fn wait_for_jobs(&mut self) -> bool {
        self.queue.blocking_recv_many(&mut self.jobs, MAX_BATCH_JOBS) > 0
    }

    /// Takes more of what waits, without waiting.
    pub(super) fn take_more(&mut self) {
        while self.takes_more && self.jobs.len() < MAX_BATCH_JOBS {
            match self.queue.try_recv() {
                Ok(job) => self.jobs.push(job),
                Err(_) => return,
            }
        }
    }
}

/// Gets what commits have changed.
type Watcher = Box<dyn Fn(&Changes) + Send + Sync>;

/// What the thread shares with others.
#[derive(Default)]
pub(super) struct WriterShared {
    commits: AtomicU64,
    /// How often there may have been changes without a notice of them.
    doubts: AtomicU64,
    pub health: Health,
    pub metrics: WriterMetrics,
    /// Set when locks of other programs are waited for no longer.
    pub closing: Arc<AtomicBool>,
    /// Locked while they are called: one change is told after the other, whoever tells of it.
    watchers: Mutex<Vec<Watcher>>,
}

/// A handle to the thread that writes.
pub(super) struct Writer {
    shared: Arc<WriterShared>,
    jobs: Mutex<Option<mpsc::UnboundedSender<QueuedJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A job in the queue.
pub(super) struct QueuedJob {
    pub job: Box<dyn Job>,
    caller: oneshot::Sender<Box<dyn Job>>,
}

impl QueuedJob {
    /// Gives the job back to its caller, who may have gone.
    fn return_to_caller(mut self, committed: Result<(), BatchError>) {
        // A refusal as well: it may rest on a change of the same batch that is not stored.
        if let Err(failure) = committed {
            self.job.fail(failure.into());
        }
        ignore(self.caller.send(self.job), "a caller who has gone needs no response");
    }
}

impl Writer {
    /// Starts the thread; what commits is made of what the thread shares with others.
    pub(super) fn start<C: Committer>(
        committer: impl FnOnce(&Arc<WriterShared>) -> StoreResult<C>,
    ) -> StoreResult<Self> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(WriterShared::default());
        let committer = committer(&shared)?;
        let telling = shared.clone();
        let thread = std::thread::Builder::new()
            .name("ginnel-writer".to_owned())
            .spawn(move || process_batches(committer, queue, &telling))
            .map_err(|source| StoreError::File { path: "writer thread".into(), source })?;
        Ok(Self { shared, jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Makes a change; as [`Store::write`](super::Store::write).
    pub(super) async fn write<W, T, E>(&self, work: W) -> Result<T, E>
    where
        W: FnOnce(&Transaction<'_>) -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        TypedJob::<T, E>::downcast_result(self.run_job(TypedJob::new_boxed(work)).await?)
    }

    /// Runs a job, which comes back when what it has changed is on disk, or failed.
    pub(super) async fn run_job(&self, job: Box<dyn Job>) -> StoreResult<Box<dyn Job>> {
        let (caller, done) = oneshot::channel();
        self.enqueue_job(QueuedJob { job, caller })?;
        done.await.map_err(|_| StoreError::Closed)
    }

    /// What the thread shares with others.
    pub(super) fn shared(&self) -> Arc<WriterShared> {
        self.shared.clone()
    }

    pub(super) fn commit_count(&self) -> u64 {
        self.shared.commits.load(Ordering::Acquire)
    }

    pub(super) fn doubt_count(&self) -> u64 {
        self.shared.doubts.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> &Health {
        &self.shared.health
    }

    pub(super) fn metrics(&self) -> &WriterMetrics {
        &self.shared.metrics
    }

    pub(super) fn watch_changes(&self, watcher: Watcher) {
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }

    fn enqueue_job(&self, job: QueuedJob) -> StoreResult<()> {
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

fn process_batches<C: Committer>(
    mut committer: C,
    mut queue: mpsc::UnboundedReceiver<QueuedJob>,
    shared: &WriterShared,
) {
    let jobs = Vec::with_capacity(MAX_BATCH_JOBS);
    let mut batch = Batch { jobs, takes_more: true, queue: &mut queue };
    while batch.wait_for_jobs() {
        let began = Instant::now();
        let committed = committer.commit_batch(&mut batch, shared);
        shared.metrics.record_commit(batch.jobs.len(), began.elapsed());
        shared.health.record_outcome(&committed);
        let committed = match committed {
            Ok(changed) => {
                shared.record_commit(changed);
                Ok(())
            }
            Err(failure) => {
                shared.record_doubt();
                Err(shared.explain_failure(failure))
            }
        };
        for job in batch.jobs.drain(..) {
            job.return_to_caller(committed.clone());
        }
        if committed.is_ok() {
            committer.tidy_up(shared);
        }
    }
    if let Err(failure) = committer.close() {
        shared.health.record_outcome::<()>(&Err(failure));
    }
}

impl WriterShared {
    /// Why a batch was not stored, for its callers: a lock is not waited for while this is closing.
    fn explain_failure(&self, failure: BatchError) -> BatchError {
        let is_locked = failure.fault == Some(StorageFault::Locked);
        if is_locked && self.closing.load(Ordering::Acquire) {
            return StoreError::Closed.into();
        }
        failure
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Counts a commit, and tells of what it has changed.
    pub(super) fn record_commit(&self, changed: Vec<String>) {
        self.count_commit();
        if !changed.is_empty() {
            self.notify_watchers(&Changes::Of(changed));
        }
    }

    /// Notes that there were changes which nobody can find out any more.
    pub(super) fn record_loss(&self) {
        self.record_doubt();
        self.notify_watchers(&Changes::All);
    }

    /// Notes that something may have been changed, and nobody knows what.
    pub(super) fn record_doubt(&self) {
        self.count_commit();
        self.doubts.fetch_add(1, Ordering::Release);
    }

    /// Before anyone hears of the change, so that nobody who has heard of it trusts older reads.
    fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Release);
    }

    fn notify_watchers(&self, changes: &Changes) {
        for watcher in self.watchers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // The change is made whatever becomes of those who hear of it.
            if catch_unwind(AssertUnwindSafe(|| watcher(changes))).is_err() {
                tracing::error!("what follows changes of the database panicked");
            }
        }
    }
}
