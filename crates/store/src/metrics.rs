//! What is counted of the database.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ginnel_metrics::{Families, Histogram, SIZE_BOUNDS};

/// What is counted of the thread that writes.
#[derive(Debug)]
pub(super) struct WriterMetrics {
    commits: Histogram,
    batches: Histogram,
    log_bytes: AtomicU64,
}

impl Default for WriterMetrics {
    fn default() -> Self {
        Self {
            commits: Histogram::for_durations(),
            batches: Histogram::new(&SIZE_BOUNDS, 1.0),
            log_bytes: AtomicU64::new(0),
        }
    }
}

impl WriterMetrics {
    /// Counts a commit of so many changes.
    pub(super) fn record_commit(&self, changes: usize, took: Duration) {
        self.commits.observe_duration(took);
        self.batches.observe(changes as u64);
    }

    /// Notes how large the log is.
    pub(super) fn record_log_size(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }

    pub(super) fn collect(&self, is_writable: bool, families: &mut Families<'_>) -> fmt::Result {
        let help = "How long commits took, with their fsync.";
        families
            .histogram("ginnel_store_commit_duration_seconds", help)?
            .write_histogram(&[], &self.commits)?;
        let help = "How many changes shared a commit.";
        families
            .histogram("ginnel_store_commit_changes", help)?
            .write_histogram(&[], &self.batches)?;
        let help = "Size of the write-ahead log as of the last commit.";
        let bytes = self.log_bytes.load(Relaxed);
        families.gauge("ginnel_store_wal_bytes", help)?.write_gauge(&[], bytes as f64)?;
        let help = "1 while changes can be stored, as of the last one.";
        let writable = f64::from(u8::from(is_writable));
        families.gauge("ginnel_store_writable", help)?.write_gauge(&[], writable)
    }
}
