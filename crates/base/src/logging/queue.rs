//! The records that wait for whoever writes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::level::LogLevel;
use super::record::{LogFields, LogRecord, LogValue};
use crate::fork::PerProcess;

/// How many records may wait; more are dropped, and counted.
const MAX_QUEUED_RECORDS: usize = 8192;

/// The records of this process: those of its parent are the parent's to tell.
static QUEUE: PerProcess<LogQueue> = PerProcess::new(LogQueue::new);

/// How many lines of the access log were lost.
static DROPPED_ACCESS_LINES: AtomicU64 = AtomicU64::new(0);

struct LogQueue {
    queued: Mutex<QueuedRecords>,
    /// Whether somebody should look into the queue; to ask this takes no lock.
    has_records: AtomicBool,
    /// How many found no place, ever.
    all_dropped: AtomicU64,
    arrived: Condvar,
}

#[derive(Default)]
struct QueuedRecords {
    records: VecDeque<LogRecord>,
    /// How many found no place since the last that were taken.
    dropped: u64,
    /// How many wait for records.
    waiting: usize,
    /// How often those who wait were told to look up.
    wakes: u64,
}

/// Adds a record, if there is a place left.
pub(super) fn push_record(record: LogRecord) {
    QUEUE.current().push(record);
}

/// Whether a record waits.
pub fn has_records() -> bool {
    QUEUE.current().has_records.load(Relaxed)
}

/// How many records were lost since the process began.
pub fn dropped_records() -> u64 {
    QUEUE.current().all_dropped.load(Relaxed)
}

/// Counts records that were lost after they were taken.
pub fn count_dropped(records: u64) {
    QUEUE.current().all_dropped.fetch_add(records, Relaxed);
}

/// Counts lines of the access log that were lost; gives how many were before.
pub fn count_dropped_access(lines: u64) -> u64 {
    DROPPED_ACCESS_LINES.fetch_add(lines, Relaxed)
}

/// How many lines of the access log were lost since the process began.
pub fn dropped_access_lines() -> u64 {
    DROPPED_ACCESS_LINES.load(Relaxed)
}

/// Takes all records, oldest first; waits for the first as long as `timeout`, or until [`wake_readers`].
pub fn take_records(timeout: Option<Duration>) -> Vec<LogRecord> {
    QUEUE.current().take(timeout)
}

/// Has those who wait for records return without any.
pub fn wake_readers() {
    let queue = QUEUE.current();
    queue.lock().wakes += 1;
    queue.arrived.notify_all();
}

impl LogQueue {
    fn new() -> Self {
        Self {
            queued: Mutex::default(),
            has_records: AtomicBool::new(false),
            all_dropped: AtomicU64::new(0),
            arrived: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueuedRecords> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, record: LogRecord) {
        let mut queued = self.lock();
        if queued.records.len() >= MAX_QUEUED_RECORDS {
            queued.dropped += 1;
            self.all_dropped.fetch_add(1, Relaxed);
            return;
        }
        queued.records.push_back(record);
        self.has_records.store(true, Relaxed);
        if queued.waiting > 0 {
            self.arrived.notify_one();
        }
    }

    fn take(&self, timeout: Option<Duration>) -> Vec<LogRecord> {
        let mut queued = self.lock();
        if let Some(timeout) = timeout {
            let wakes = queued.wakes;
            queued.waiting += 1;
            let waits =
                |queued: &mut QueuedRecords| queued.records.is_empty() && queued.wakes == wakes;
            let waited = self.arrived.wait_timeout_while(queued, timeout, waits);
            queued = waited.unwrap_or_else(PoisonError::into_inner).0;
            queued.waiting -= 1;
        }
        self.has_records.store(false, Relaxed);
        let mut records = Vec::from(std::mem::take(&mut queued.records));
        let dropped = std::mem::take(&mut queued.dropped);
        drop(queued);
        records.extend((dropped > 0).then(|| dropped_record(dropped)));
        records
    }
}

/// The record that stands for those that were dropped.
fn dropped_record(dropped: u64) -> LogRecord {
    let mut fields = LogFields::default();
    fields.set("dropped", LogValue::Integer(i64::try_from(dropped).unwrap_or(i64::MAX)));
    LogRecord {
        time: SystemTime::now(),
        level: LogLevel::Warn,
        target: "logging",
        message: "log records were dropped: more were made than were read".to_owned(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn record(message: &str) -> LogRecord {
        LogRecord {
            time: SystemTime::now(),
            level: LogLevel::Debug,
            target: "agent",
            message: message.to_owned(),
            fields: LogFields::default(),
        }
    }

    #[test]
    fn what_finds_no_place_is_counted_in_a_later_record() {
        let queue = LogQueue::new();
        for number in 0..MAX_QUEUED_RECORDS + 3 {
            queue.push(record(&number.to_string()));
        }

        let taken = queue.take(None);

        assert_eq!(taken.len(), MAX_QUEUED_RECORDS + 1);
        assert_eq!(taken[0].message, "0");
        let last = taken.last().unwrap();
        assert_eq!((last.level, last.target), (LogLevel::Warn, "logging"));
        assert!(last.to_line().ends_with(" dropped=3"), "{}", last.to_line());
        assert!(queue.take(None).is_empty(), "the count begins anew");
        assert_eq!(queue.all_dropped.load(Relaxed), 3, "but not for those who count them all");
    }

    #[test]
    fn who_waits_has_the_first_record_at_once() {
        let queue = LogQueue::new();
        thread::scope(|scope| {
            let reader = scope.spawn(|| queue.take(Some(Duration::from_secs(60))));
            while queue.lock().waiting == 0 {
                thread::yield_now();
            }
            queue.push(record("m"));
            assert_eq!(reader.join().unwrap().len(), 1);
        });
        assert!(!queue.has_records.load(Relaxed));
    }
}
