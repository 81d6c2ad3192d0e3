//! How the backups of a service go.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ginnel_metrics::Families;
use ginnel_store::{BackupReport, StoreResult};

/// How the backups of a service go.
#[derive(Debug, Clone, Default)]
pub struct BackupStatus {
    /// How many were made and verified since the service was started.
    pub made: u64,
    /// How many failed since the service was started.
    pub failed: u64,
    /// When the last one was made.
    pub last_made: Option<SystemTime>,
    /// What it holds.
    pub last: Option<BackupReport>,
    /// Why the last attempt failed; none when it succeeded.
    pub error: Option<String>,
}

/// Is told how backups go.
#[derive(Default)]
pub(crate) struct BackupProgress(Mutex<BackupStatus>);

impl BackupProgress {
    pub(crate) fn status(&self) -> BackupStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many there were, and when the last one was made.
    pub(crate) fn collect_metrics(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = self.status();
        let mut family = families.counter("ginnel_backups", "Backups, by their outcome.")?;
        family.write_counter(&[("outcome", "made")], status.made)?;
        family.write_counter(&[("outcome", "failed")], status.failed)?;
        let Some(last) = status.last_made else { return Ok(()) };
        let at = last.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let help = "When the last backup was made.";
        families.gauge("ginnel_backup_last_success_timestamp_seconds", help)?.write_gauge(&[], at)
    }

    pub(super) fn record_outcome(&self, outcome: StoreResult<BackupReport>, now: SystemTime) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(report) => {
                tracing::info!(bytes = report.bytes, "backed up to {}", report.path.display());
                status.made += 1;
                status.last_made = Some(now);
                status.last = Some(report);
                status.error = None;
            }
            Err(error) => {
                tracing::error!("no backup: {error}");
                status.failed += 1;
                status.error = Some(error.to_string());
            }
        }
    }
}
