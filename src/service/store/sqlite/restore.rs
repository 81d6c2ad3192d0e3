//! Puts a copy of a database in its place.

use std::path::{Path, PathBuf};

use chrono::Utc;

use super::copy::{self, BackupReport, Overwrite, PartialFile};
use super::lock::{FileLock, NameLock};
use super::{open, place, state};
use crate::files;
use crate::service::store::StoreError;

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// What the database holds now.
    pub restored: BackupReport,
    /// Where the database is that had the name before.
    pub replaced: Option<PathBuf>,
}

/// Makes a database of a copy, which is checked before, and again in its new place.
///
/// A database that has the name is moved aside with its log. At each moment, a process that is killed
/// leaves the one or the other under the name. Blocks on the disk.
///
/// # Errors
/// When the copy is no whole database, a service uses the name, or there is a database that may not be
/// replaced; what is there stays then.
pub fn restore(
    from: &Path,
    path: &Path,
    overwrite: Overwrite,
) -> Result<RestoreReport, StoreError> {
    let path = &place::resolve(path);
    open::check_place(path)?;
    state::check_log(&place::resolve(from))?;
    let source = open::existing_source(from)?;
    copy::verify(from).map_err(|error| open::explain(error, from))?;
    let _name = NameLock::take(path)?;
    if open::is_new(path) {
        let restored = copy::write(&source, path, Overwrite::Yes)?;
        return Ok(RestoreReport { restored, replaced: None });
    }
    let _file = FileLock::take(path)?;
    if overwrite == Overwrite::No {
        return Err(StoreError::Exists(path.clone()));
    }
    let partial = PartialFile::take(path)?;
    let replaced = partial.keep_if(|| {
        let report = copy::fill(&source, &partial)?;
        let replaced = move_aside(path)?;
        partial.publish(path, Overwrite::Yes)?;
        Ok((report, replaced))
    });
    let (report, replaced) = replaced?;
    let restored = BackupReport { path: path.clone(), ..report };
    Ok(RestoreReport { restored, replaced: Some(replaced) })
}

/// Gives a database another name, which has its log beside it; the file keeps its own name as well.
fn move_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    let now = Utc::now().format("%Y%m%dT%H%M%SZ");
    let aside = files::beside(path, &format!("-replaced-{now}"));
    if aside.symlink_metadata().is_ok() {
        return Err(StoreError::Exists(aside));
    }
    std::fs::hard_link(path, &aside).map_err(failed)?;
    for suffix in ["-wal", "-journal"] {
        let log = files::beside(path, suffix);
        if log.exists() {
            std::fs::rename(&log, files::beside(&aside, suffix)).map_err(failed)?;
        }
    }
    place::remove(&files::beside(path, "-shm"))?;
    files::sync_folder(path).map_err(failed)?;
    Ok(aside)
}
