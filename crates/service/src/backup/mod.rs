//! Backups that a service makes of its database: from time to time, and for callers of its API.

mod download;
mod folder;
mod status;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::Error;
use super::store::{BackupReport, Overwrite, Store, StoreError, StoreResult};
pub(super) use download::{BackupDownloads, Download};
use folder::BackupFolder;
use ginnel_base::logging::or_debug;
use ginnel_settings::settings;
pub(super) use status::BackupProgress;
pub use status::BackupStatus;

/// How long is waited after a backup that failed, at most.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);

settings! {
    /// When backups are made, and how many are kept.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BackupSchedule {
    }

    /// The settings under `backup`.
    rows {
        to: Option<PathBuf> = None,
            "backup.to", "DIR",
            "A folder to back the database up to from time to time",
            listed_in_help(), when_unset("no backups");
        every: Duration = Duration::from_secs(6 * 3600),
            "backup.every", "DURATION",
            "The time between two backups",
            with_bounds(1000, u32::MAX as u64 * 1000);
        keep: usize = 14,
            "backup.keep", "N",
            "Number of backups to keep; older ones are removed when a new one is verified",
            with_bounds(1, u32::MAX as u64);
    }
}

impl BackupSchedule {
    /// The folder for backups must be there.
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.to {
            Some(folder) if !folder.is_dir() => Err(Error::BackupFolder(folder.clone())),
            _ => Ok(()),
        }
    }
}

/// Makes backups for as long as the store is in use; the first one when the last one in the folder is
/// old enough.
pub(super) fn start_schedule(
    store: &Arc<Store>,
    schedule: BackupSchedule,
    database: Option<&Path>,
) -> Arc<BackupProgress> {
    let status = Arc::<BackupProgress>::default();
    let BackupSchedule { every, keep, to: Some(folder) } = schedule else { return status };
    let (store, progress) = (Arc::downgrade(store), status.clone());
    let folder = BackupFolder::for_database(folder, database);
    ginnel_base::tasks::spawn(async move {
        let last = folder.newest_time(SystemTime::now());
        let last = or_debug!(last, "the folder for backups cannot be read").flatten();
        let mut pause = last.map_or(Duration::ZERO, |last| time_until(last + every));
        loop {
            tokio::time::sleep(pause).await;
            let Some(made) = back_up(&store, &folder, keep).await else { return };
            pause = match &made {
                Ok(_) => every,
                Err(_) => every.min(RETRY_INTERVAL),
            };
            progress.record_outcome(made, SystemTime::now());
        }
    });
    status
}

fn time_until(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::now()).unwrap_or_default()
}

/// Makes a backup, then removes old ones; none when the store is no longer in use.
async fn back_up(
    store: &Weak<Store>,
    folder: &BackupFolder,
    keep: usize,
) -> Option<StoreResult<BackupReport>> {
    let (store, folder) = (store.upgrade()?, folder.clone());
    let work = move || {
        let now = SystemTime::now();
        let report = store.back_up(&folder.next(now), Overwrite::No)?;
        // The backup is good whatever becomes of the old ones.
        if let Err(error) = folder.prune_old(keep, now) {
            tracing::warn!("old backups stay: {error}");
        }
        Ok(report)
    };
    Some(ginnel_base::tasks::spawn_blocking(work).await.unwrap_or(Err(StoreError::Panicked)))
}
