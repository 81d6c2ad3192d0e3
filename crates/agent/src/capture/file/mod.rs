//! The file that captured requests survive a restart in, where somebody asks for one.
//!
//! A thread of its own writes what has ended, many records in one transaction, from a queue that is
//! bounded: no request waits for a disk. What does not fit, or cannot be written, is counted and left
//! out; memory has it all the same.

mod database;
mod stored;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use tokio::sync::oneshot;

use super::record::CaptureRecord;
use database::{CaptureChanges, CaptureDatabase, ReadPosition};
pub(crate) use database::{FileLimits, InspectFileError};
use ginnel_api::mask;
use ginnel_base::logging::{ignore, or_debug};
use stored::StoredRecord;

/// How many records wait to be written; more are left out.
const MAX_QUEUED_RECORDS: usize = 1000;
/// How many changes are made in one transaction.
const MAX_CHANGES_AT_ONCE: usize = 64;
/// How many times the file is read before the agent goes on: all of a small file, and a few MB of another.
const READS_AT_START: usize = 4;
/// How often what is too old is looked for, although nothing is written.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
/// How long the end of an agent waits for what is still to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a problem that goes on is said again.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// The file, and the thread that writes it.
pub(crate) struct InspectFile {
    path: PathBuf,
    queue: Arc<FileQueue>,
}

/// How the file is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileUsage {
    /// What is kept in it.
    pub bytes: usize,
    /// How much may be.
    pub limit: usize,
    /// How many records were left out, because they came too fast or could not be written.
    pub dropped: u64,
    /// Why the last change failed; none where it did not.
    pub problem: Option<String>,
}

#[derive(Default)]
struct FileQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<FileJob>,
    /// How many of them save a record.
    records: usize,
    is_closing: bool,
    is_closed: bool,
    /// The one that reads and writes.
    thread: Option<ThreadId>,
    /// What is to be removed, and could not be yet.
    unremoved: BTreeSet<u32>,
    usage: FileUsage,
    complained: Option<Instant>,
}

enum FileJob {
    Save(Arc<CaptureRecord>),
    Remove(u32),
    Clear(oneshot::Sender<Result<(), String>>),
}

/// A file that is open, before anything is read or written.
pub(crate) struct OpenedFile {
    path: PathBuf,
    database: CaptureDatabase,
    queue: Arc<FileQueue>,
    /// The largest sequence that is in it.
    pub last: u32,
}

/// Takes what is read: some records, or that there are no more. It says whether it wants more.
pub(crate) type TakeRecords = Box<dyn FnMut(Option<Vec<CaptureRecord>>) -> bool + Send>;

/// What is still to be read.
struct FileReading {
    position: ReadPosition,
    take: TakeRecords,
}

impl OpenedFile {
    /// Reads the newest requests, and begins to read the others and to write in a thread.
    ///
    /// # Errors
    /// When the file cannot be read, or there is no thread.
    pub fn start_worker(self, take: TakeRecords) -> Result<(), InspectFileError> {
        let Self { path, mut database, queue, .. } = self;
        let mut reading = FileReading { position: ReadPosition::START, take };
        let goes_on = reading.read_newest(&database).map_err(|source| {
            queue.mark_closed();
            InspectFileError::Database { path: path.clone(), source }
        })?;
        let mut reading = goes_on.then_some(reading);
        let writing = queue.clone();
        let thread = thread::Builder::new().name("ginnel-inspect".to_owned());
        let spawned = thread.spawn(move || {
            writing.lock_state().thread = Some(thread::current().id());
            loop {
                writing.read_some(&mut reading, &database);
                if !writing.write_some(&mut database, reading.is_none()) {
                    break;
                }
            }
            drop(database);
            writing.mark_closed();
        });
        spawned.map(drop).map_err(|source| {
            queue.mark_closed();
            InspectFileError::File { path, source }
        })
    }
}

impl FileReading {
    /// Reads what is pinned, and the newest of the others; gives whether there is more.
    fn read_newest(&mut self, database: &CaptureDatabase) -> rusqlite::Result<bool> {
        for _ in 0..READS_AT_START {
            if !self.read_records(database)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads some records; gives whether there are more, and somebody wants them.
    fn read_records(&mut self, database: &CaptureDatabase) -> rusqlite::Result<bool> {
        let records = database.read_next(&mut self.position)?;
        let is_more = records.is_some();
        Ok((self.take)(records) && is_more)
    }
}

impl InspectFile {
    /// Opens a file. Nothing is read or written before [`OpenedFile::start_worker`].
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn open(path: &Path, limits: FileLimits) -> Result<(Self, OpenedFile), InspectFileError> {
        let failed = |source| InspectFileError::Database { path: path.to_owned(), source };
        let mut database = CaptureDatabase::open(path, limits)?;
        // What is too old, or too much for limits that are lower now.
        database.apply_changes(|_| Ok(())).map_err(failed)?;
        let last = database.last_sequence().map_err(failed)?;
        let queue = Arc::new(FileQueue::default());
        queue.lock_state().usage =
            FileUsage { bytes: database.bytes, limit: limits.bytes, ..FileUsage::default() };
        let file = Self { path: path.to_owned(), queue: queue.clone() };
        Ok((file, OpenedFile { path: path.to_owned(), database, queue, last }))
    }

    /// Reports whether a file can be opened, as far as its folder and its beginning show. Neither makes
    /// nor changes it.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check_path(path: &Path) -> Result<(), InspectFileError> {
        database::check_file(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is.
    pub fn usage(&self) -> FileUsage {
        self.queue.lock_state().usage.clone()
    }

    /// Has a record written that has ended, or has changed since.
    pub fn save_record(&self, record: &Arc<CaptureRecord>) {
        let mut state = self.queue.lock_state();
        if state.is_closing {
            return;
        }
        if state.records >= MAX_QUEUED_RECORDS {
            state.drop_records(1, "requests come faster than the disk takes them");
            return;
        }
        state.records += 1;
        state.jobs.push_back(FileJob::Save(record.clone()));
        self.queue.changed.notify_all();
    }

    /// Has a record written, and waits for room in the queue; for threads that may wait.
    pub fn save_waiting(&self, record: &Arc<CaptureRecord>) {
        let mut state = self.queue.lock_state();
        while state.records >= MAX_QUEUED_RECORDS && !state.is_closing {
            let waited = self.queue.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.save_record(record);
    }

    /// Has a record removed.
    pub fn remove_record(&self, sequence: u32) {
        self.queue.push_job(FileJob::Remove(sequence));
    }

    /// Has all records removed; says when that is done, or why it failed.
    pub fn clear(&self) -> oneshot::Receiver<Result<(), String>> {
        let (done, cleared) = oneshot::channel();
        self.queue.push_job(FileJob::Clear(done));
        cleared
    }

    /// Writes what is left, and lets the file go.
    pub fn close(&self) {
        let mut state = self.queue.lock_state();
        state.is_closing = true;
        self.queue.changed.notify_all();
        if state.thread == Some(thread::current().id()) {
            // What was read has outlived whoever it was read for; this thread ends next.
            return;
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while !state.is_closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("the disk is slow: the last captured requests may not be written");
                return;
            }
            let waited = self.queue.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for InspectFile {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for InspectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InspectFile").field(&mask::path(&self.path)).finish()
    }
}

impl FileQueue {
    fn lock_state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_job(&self, job: FileJob) {
        let mut state = self.lock_state();
        if !state.is_closing {
            state.jobs.push_back(job);
            self.changed.notify_all();
        }
    }

    /// Says that nothing will be written any more.
    fn mark_closed(&self) {
        self.lock_state().is_closed = true;
        self.changed.notify_all();
    }

    /// Reads some records, until all are read or nobody wants more.
    fn read_some(&self, reading: &mut Option<FileReading>, database: &CaptureDatabase) {
        let Some(some) = reading else { return };
        if self.lock_state().is_closing {
            *reading = None;
            return;
        }
        match some.read_records(database) {
            Ok(true) => {}
            Ok(false) => *reading = None,
            Err(error) => {
                tracing::warn!(err = %error, "not all captured requests can be read from their file");
                (some.take)(None);
                self.lock_state().usage.problem = Some(error.to_string());
                *reading = None;
            }
        }
    }

    /// Makes changes, and waits for them where nothing else is to be done; false when there will be no more.
    fn write_some(&self, database: &mut CaptureDatabase, waits: bool) -> bool {
        let Some(jobs) = self.take_jobs(waits) else { return false };
        if jobs.is_empty() && !waits {
            return true;
        }
        let mut jobs = jobs.into_iter().peekable();
        loop {
            self.write_records(database, &mut jobs);
            if let Some(FileJob::Clear(done)) = jobs.next_if(|job| matches!(job, FileJob::Clear(_)))
            {
                let cleared = database.clear();
                let said = cleared.as_ref().map(drop).map_err(ToString::to_string);
                self.lock_state().record_outcome(database.bytes, 0, cleared);
                ignore(done.send(said), "whoever cleared the requests may not wait any more");
            }
            if jobs.peek().is_none() {
                return true;
            }
        }
    }

    /// Makes the changes up to the next removal of all, together.
    fn write_records(
        &self,
        database: &mut CaptureDatabase,
        jobs: &mut Peekable<IntoIter<FileJob>>,
    ) {
        let (mut records, mut displaced) = (0, 0);
        // What was to be removed before, and could not be, comes first.
        let mut removed = std::mem::take(&mut self.lock_state().unremoved);
        let written = database.apply_changes(|changes| {
            removed.iter().try_for_each(|sequence| changes.remove_record(*sequence))?;
            while let Some(job) = jobs.next_if(|job| !matches!(job, FileJob::Clear(_))) {
                match job {
                    FileJob::Save(record) => match StoredRecord::from_record(&record) {
                        Some(stored) => {
                            records += 1;
                            changes.save_record(&stored)?;
                        }
                        None => displaced += u64::from(record.lock_exchange().is_displaced),
                    },
                    FileJob::Remove(sequence) => {
                        removed.insert(sequence);
                        changes.remove_record(sequence)?;
                    }
                    FileJob::Clear(_) => {}
                }
            }
            Ok(())
        });
        // What could not be written takes no removal with it.
        let remove = |changes: &mut CaptureChanges<'_>| {
            removed.iter().try_for_each(|sequence| changes.remove_record(*sequence))
        };
        if written.is_err() && !removed.is_empty() {
            let again =
                or_debug!(database.apply_changes(remove), "cannot remove a captured request yet");
            again.into_iter().for_each(|()| removed.clear());
        } else if written.is_ok() && !removed.is_empty() {
            or_debug!(database.shorten_log(), "the log of captured requests stays long");
            removed.clear();
        }
        self.lock_state().unremoved = removed;
        let mut state = self.lock_state();
        if displaced > 0 {
            state.drop_records(displaced, "memory had no room for them until they were written");
        }
        state.record_outcome(database.bytes, records, written);
    }

    /// The next changes, in their order; nothing after a while, and none when there will be no more.
    fn take_jobs(&self, waits: bool) -> Option<Vec<FileJob>> {
        let mut state = self.lock_state();
        if state.jobs.is_empty() && waits && !state.is_closing {
            let waited = self.changed.wait_timeout(state, PRUNE_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.jobs.is_empty() && state.is_closing {
            return None;
        }
        let count = state.jobs.len().min(MAX_CHANGES_AT_ONCE);
        let jobs: Vec<_> = state.jobs.drain(..count).collect();
        state.records -= jobs.iter().filter(|job| matches!(job, FileJob::Save(_))).count();
        self.changed.notify_all();
        Some(jobs)
    }
}

impl QueueState {
    /// Notes how some changes went, with so many records among them.
    fn record_outcome(&mut self, bytes: usize, records: u64, outcome: rusqlite::Result<()>) {
        self.usage.bytes = bytes;
        match outcome {
            Ok(()) if records > 0 => self.usage.problem = None,
            Ok(()) => {}
            Err(error) => {
                let problem = error.to_string();
                self.drop_records(records, &problem);
                self.usage.problem = Some(problem);
            }
        }
    }

    /// Counts records that are left out, and says so now and then.
    fn drop_records(&mut self, records: u64, problem: &str) {
        self.usage.dropped += records;
        let is_new = |at: Instant| at.elapsed() >= COMPLAINT_INTERVAL;
        if self.complained.is_none_or(is_new) {
            self.complained = Some(Instant::now());
            let dropped = self.usage.dropped;
            tracing::warn!(
                dropped,
                err = problem,
                "captured requests are not written to their file"
            );
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
