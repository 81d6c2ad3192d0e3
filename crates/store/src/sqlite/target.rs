//! Puts a database file in the place of another: the one way for backups, downloads and restored copies.
//!
//! Meanwhile no service and no other copy gets the name. What SQLite has left beside it is moved away
//! first, for it would be taken for a part of the new file.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::Utc;
use rusqlite::{Connection, OpenFlags};

use ginnel_base::files;
use ginnel_base::logging::or_debug;

use super::copy::{self, BackupReport, Overwrite};
use super::lock::{FileLock, NameLock};
use super::place::{self, FileId};
use super::{migrate, state};
use crate::{StoreError, StoreResult};

/// How long the lock of another copy is waited for, and how often it is tried.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// What follows the name of a database in those of its logs.
const LOGS: [&str; 2] = ["-wal", "-journal"];

/// The name that a copy is to have, and the file that gets it when it is complete.
///
/// Without [`CopyTarget::publish`], the file is removed and the name stays with what had it.
pub struct CopyTarget {
    path: PathBuf,
    partial: PartialFile,
    /// What becomes of the file that has the name.
    former: Former,
    // In this order: the name is free when the file is.
    former_lock: Option<FileLock>,
    _name: Option<NameLock>,
}

/// What becomes of a file that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Former {
    /// It goes, with its log.
    Removed,
    /// It stays under another name, with its log; the new file gets its owner and mode.
    Kept,
}

/// What has the name now, and what had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// What the database holds now.
    pub restored: BackupReport,
    /// Where the database is that had the name before.
    pub replaced: Option<PathBuf>,
    /// Where the log is that was beside the name without a database.
    pub stray_log: Option<PathBuf>,
}

impl CopyTarget {
    /// A file for a copy, which only its owner can read.
    ///
    /// # Errors
    /// When a service or another copy uses the name, or a file has it and may not be replaced.
    pub fn for_file(to: &Path, overwrite: Overwrite) -> StoreResult<Self> {
        if overwrite == Overwrite::No && to.symlink_metadata().is_ok() {
            return Err(StoreError::Exists(to.to_owned()));
        }
        let path = place::resolve_links(to);
        place::check_place(&path)?;
        // No service has used a name without such a file, and a copy makes none.
        let name = NameLock::take_existing(&path)?;
        Self::lock_path(path, name, Former::Removed)
    }

    /// The place of a database, which a service is to open.
    pub(super) fn for_database(path: &Path, overwrite: Overwrite) -> StoreResult<Self> {
        let path = place::resolve_links(path);
        place::check_place(&path)?;
        let name = NameLock::take(&path)?;
        if overwrite == Overwrite::No && !place::is_new(&path) {
            return Err(StoreError::Exists(path));
        }
        Self::lock_path(path, Some(name), Former::Kept)
    }

    fn lock_path(path: PathBuf, name: Option<NameLock>, former: Former) -> StoreResult<Self> {
        let former_lock = path.exists().then(|| FileLock::take(&path)).transpose()?;
        let partial = PartialFile::create_or_wait(&path)?;
        Ok(Self { path, partial, former, former_lock, _name: name })
    }

    /// The file to write to; its name does not matter.
    pub fn file(&mut self) -> &mut File {
        &mut self.partial.file
    }

    /// Copies what `source` can read now, and puts it in place.
    pub(super) fn fill_from(self, source: &Connection) -> StoreResult<RestoreReport> {
        let expected = copy::copy_database(source, &self.partial.path)?;
        self.verify_and_publish(Some(&expected))
    }

    /// Checks and counts the file, puts it on disk, and gives it the name.
    ///
    /// # Errors
    /// When the file is no whole database, or cannot get the name.
    pub fn publish(self) -> StoreResult<RestoreReport> {
        self.verify_and_publish(None)
    }

    fn verify_and_publish(mut self, expected: Option<&BackupReport>) -> StoreResult<RestoreReport> {
        let partial = &self.partial.path;
        if self.former == Former::Kept {
            self.partial.inherit_attributes(&self.path)?;
        }
        self.partial.sync()?;
        state::check_log(partial)?;
        let report =
            verify_file(partial).map_err(|error| place::translate_error(error, partial))?;
        if expected.is_some_and(|it| (it.schema, &it.rows) != (report.schema, &report.rows)) {
            return Err(mismatch_error(partial));
        }
        let aside = self.move_aside()?;
        if let Err(error) = self.rename_partial() {
            or_debug!(aside.undo(&self.path), "the log of a database is not put back");
            return Err(error);
        }
        self.partial.is_named = true;
        let restored = BackupReport { path: self.path.clone(), ..report };
        if copy::count_file_rows(&self.path)
            .map_err(|error| place::translate_error(error, &self.path))?
            != restored
        {
            return Err(mismatch_error(&self.path));
        }
        aside.into_report(restored, self.former)
    }

    /// Gives what has the name, or is left beside it, another one; the file keeps its own name as well.
    fn move_aside(&self) -> StoreResult<Aside> {
        let now = Utc::now().format("%Y%m%dT%H%M%SZ");
        let path = files::with_suffix(&self.path, &format!("-replaced-{now}"));
        let is_there = |suffix: &&str| files::with_suffix(&self.path, suffix).exists();
        let logs: Vec<_> = LOGS.into_iter().filter(is_there).collect();
        let is_kept = !logs.is_empty() || self.former == Former::Kept;
        let has_file = is_kept && !place::is_new(&self.path);
        let mut taken =
            ["", "-wal", "-journal"].map(|suffix| files::with_suffix(&path, suffix)).into_iter();
        if let Some(taken) = taken.find(|name| name.symlink_metadata().is_ok()) {
            return Err(StoreError::Exists(taken));
        }
        let mut aside = Aside { path, has_file: false, logs: Vec::new() };
        if let Err(source) = aside.move_files(&self.path, has_file, &logs) {
            or_debug!(aside.undo(&self.path), "what has the name is not put back");
            return Err(StoreError::File { path: self.path.clone(), source });
        }
        Ok(aside)
    }

    /// At each moment, a process that is killed leaves the one file or the other under the name.
    fn rename_partial(&self) -> StoreResult<()> {
        let (from, to) = (&self.partial.path, &self.path);
        let named = match self.former_lock {
            Some(_) => std::fs::rename(from, to),
            // Nobody was kept from making one since.
            None => files::rename_new(from, to),
        };
        named.and_then(|()| files::sync_folder(to)).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => StoreError::Exists(to.clone()),
            _ => StoreError::File { path: to.clone(), source },
        })
    }
}

/// Copies what `source` can read now to a file that only its owner can read.
///
/// The copy is opened, checked and counted, and put on disk, before it has its name.
pub(super) fn write_copy(
    source: &Connection,
    to: &Path,
    overwrite: Overwrite,
) -> StoreResult<BackupReport> {
    Ok(CopyTarget::for_file(to, overwrite)?.fill_from(source)?.restored)
}

/// Checks a file that is to be a database of ours.
fn verify_file(path: &Path) -> StoreResult<BackupReport> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    migrate::check_owner(&Connection::open_with_flags(path, flags)?, path)?;
    copy::verify_database(path)
}

fn mismatch_error(path: &Path) -> StoreError {
    let problem = "it does not hold what was copied".to_owned();
    StoreError::Damaged { path: path.to_owned(), problem }
}

/// What was there, under other names.
struct Aside {
    path: PathBuf,
    has_file: bool,
    logs: Vec<&'static str>,
}

impl Aside {
    /// Gives a file and its logs other names; the file keeps its own as well.
    fn move_files(
        &mut self,
        path: &Path,
        has_file: bool,
        logs: &[&'static str],
    ) -> std::io::Result<()> {
        if has_file {
            std::fs::hard_link(path, &self.path)?;
            self.has_file = true;
        }
        for log in logs {
            std::fs::rename(files::with_suffix(path, log), files::with_suffix(&self.path, log))?;
            self.logs.push(log);
        }
        let index = files::with_suffix(path, "-shm");
        if let Err(error) = std::fs::remove_file(index)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        files::sync_folder(path)
    }

    fn undo(&self, path: &Path) -> std::io::Result<()> {
        for log in &self.logs {
            std::fs::rename(files::with_suffix(&self.path, log), files::with_suffix(path, log))?;
        }
        if self.has_file { std::fs::remove_file(&self.path) } else { Ok(()) }
    }

    fn into_report(self, restored: BackupReport, former: Former) -> StoreResult<RestoreReport> {
        if former == Former::Removed {
            place::remove_companions(&self.path)?;
            place::remove_if_present(&self.path)?;
            return Ok(RestoreReport { restored, replaced: None, stray_log: None });
        }
        let log = self.logs.first().map(|log| files::with_suffix(&self.path, log));
        let stray_log = log.filter(|_| !self.has_file);
        Ok(RestoreReport { restored, replaced: self.has_file.then_some(self.path), stray_log })
    }
}

/// The file of a copy that is not finished, which one process writes at a time.
struct PartialFile {
    path: PathBuf,
    file: File,
    is_named: bool,
}

impl PartialFile {
    /// Makes the file, in place of one that a killed process has left, whose lock may outlive it for a moment.
    fn create_or_wait(to: &Path) -> StoreResult<Self> {
        let began = Instant::now();
        loop {
            match Self::try_create(to) {
                Err(StoreError::Locked(_)) if began.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                ended => return ended,
            }
        }
    }

    fn try_create(to: &Path) -> StoreResult<Self> {
        let path = files::staged_path(to);
        let made = Self::create_locked(&path).or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                remove_leftover(&path)?;
                Self::create_locked(&path)
            }
            _ => Err(error),
        });
        let file = made.map_err(|source| match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::AlreadyExists => StoreError::Locked(path.clone()),
            _ => StoreError::File { path: path.clone(), source },
        })?;
        let partial = Self { path, file, is_named: false };
        place::remove_companions(&partial.path)?;
        Ok(partial)
    }

    fn create_locked(path: &Path) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true);
        let file = try_lock_exclusive(files::with_mode(options, files::SECRET_MODE).open(path)?)?;
        // Another process may have taken it for one that was left, before it was locked.
        match FileId::from_metadata(&file.metadata()?) == FileId::from_metadata(&path.metadata()?) {
            true => Ok(file),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Takes owner and mode of the database that is replaced, or the owner of the folder.
    fn inherit_attributes(&self, database: &Path) -> StoreResult<()> {
        let failed = |source| StoreError::File { path: database.to_owned(), source };
        place::inherit_owner(&self.file, database).map_err(failed)?;
        match database.metadata() {
            Ok(former) => self.file.set_permissions(former.permissions()).map_err(failed),
            Err(_) => Ok(()),
        }
    }

    fn sync(&self) -> StoreResult<()> {
        self.file.sync_all().map_err(|source| StoreError::File { path: self.path.clone(), source })
    }

    fn remove_files(&self) -> StoreResult<()> {
        place::remove_companions(&self.path)?;
        place::remove_if_present(&self.path)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_named {
            or_debug!(self.remove_files(), "a copy that is not finished stays");
        }
    }
}

/// Removes the file of a copy that a killed process has left; one that is being written is an error.
pub fn remove_leftover(path: &Path) -> std::io::Result<()> {
    // As long as this is open, nobody else takes the same file for one that was left.
    let _left = try_lock_exclusive(File::open(path)?)?;
    std::fs::remove_file(path)
}

fn try_lock_exclusive(file: File) -> std::io::Result<File> {
    file.try_lock()?;
    Ok(file)
}
