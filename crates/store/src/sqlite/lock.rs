//! Keeps other services away from a database.
//!
//! Two locks: one on the file itself, which holds whatever name it is called by, and one on the name
//! (`<path>-lock`), which holds while there is no file yet. The operating system frees both when the
//! process ends. They are `flock`s, which do not meet the record locks of SQLite.
//!
//! A process loses its record locks on a file when it closes *any* descriptor of that file. So the
//! descriptor behind a [`FileLock`] is opened before SQLite opens the file and closed after SQLite has
//! closed it, and a file that this process has locked already is not opened a second time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek};
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};

use ginnel_base::files;
use ginnel_base::logging::or_debug;

use super::place::{self, FileId};
use crate::{StoreError, StoreResult};

/// The files that are locked, by process: a child that was forked off has only a copy of this.
static LOCKED: Mutex<Vec<(u32, FileId)>> = Mutex::new(Vec::new());

/// The lock on the name of a database.
pub(crate) struct NameLock(File);

/// The lock on the file of a database.
pub(crate) struct FileLock {
    file: File,
    id: FileId,
}

impl NameLock {
    /// Locks `<path>-lock`; the file stays, for removing it would race.
    pub(crate) fn take(path: &Path) -> StoreResult<Self> {
        let name = files::with_suffix(path, "-lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
        let file = opened.map_err(|source| match source.kind() {
            // A file that is there is another user's, and the folder may be writable.
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if !name.exists() => {
                StoreError::ReadOnlyDirectory(path.to_owned())
            }
            _ => StoreError::File { path: name.clone(), source },
        })?;
        or_debug!(place::inherit_owner(&file, path), "the lock of the database keeps its owner");
        try_lock_exclusive(&file, path)?;
        Ok(Self(file))
    }

    /// Locks the name if it was ever locked.
    pub(crate) fn take_existing(path: &Path) -> StoreResult<Option<Self>> {
        let name = files::with_suffix(path, "-lock");
        match File::open(&name) {
            Ok(file) => try_lock_exclusive(&file, path).map(|()| Some(Self(file))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::File { path: name, source }),
        }
    }

    /// True while somebody has locked the name. Asking takes the lock for a moment.
    pub(crate) fn is_taken(path: &Path) -> bool {
        // Without the file nobody has ever locked it.
        File::open(files::with_suffix(path, "-lock"))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // A child that was forked off holds the same lock, so closing alone would not free it.
        or_debug!(self.0.unlock(), "cannot unlock the database's name");
    }
}

impl FileLock {
    /// Returns the first bytes of a file, at most `most`. Gives `None` if this process has locked the file, because a
    /// second descriptor would cost the first its record locks.
    pub(crate) fn peek_start(path: &Path, most: u64) -> std::io::Result<Option<Vec<u8>>> {
        let locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        if is_locked(&locked, FileId::from_metadata(&path.metadata()?)) {
            return Ok(None);
        }
        let file = File::open(path)?;
        if is_locked(&locked, FileId::from_metadata(&file.metadata()?)) {
            // The file was moved here since it was asked for by name: the descriptor must stay open.
            std::mem::forget(file);
            return Ok(None);
        }
        let mut start = Vec::new();
        file.take(most).read_to_end(&mut start)?;
        Ok(Some(start))
    }

    /// Opens and locks the file of a database.
    pub(crate) fn take(path: &Path) -> StoreResult<Self> {
        let failed = |source| StoreError::File { path: path.to_owned(), source };
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked by name first: closing a second descriptor would cost the first its record locks.
        if is_locked(&locked, FileId::from_metadata(&path.metadata().map_err(failed)?)) {
            return Err(StoreError::Locked(path.to_owned()));
        }
        let file = File::open(path).map_err(failed)?;
        let id = FileId::from_metadata(&file.metadata().map_err(failed)?);
        if is_locked(&locked, id) {
            // The file was moved here since it was asked for by name: the descriptor must stay open.
            std::mem::forget(file);
            return Err(StoreError::Locked(path.to_owned()));
        }
        lock_file(&file, path)?;
        locked.push((process::id(), id));
        Ok(Self { file, id })
    }

    /// Locks a file that was just made, and that nobody else knows.
    pub(crate) fn of_new(file: File, path: &Path) -> StoreResult<Self> {
        let metadata = file.metadata();
        let id = metadata.map_err(|source| StoreError::File { path: path.to_owned(), source })?;
        let id = FileId::from_metadata(&id);
        lock_file(&file, path)?;
        LOCKED.lock().unwrap_or_else(PoisonError::into_inner).push((process::id(), id));
        Ok(Self { file, id })
    }

    /// The first bytes of the file, at most `most`.
    pub(crate) fn read_start(&mut self, most: u64) -> std::io::Result<Vec<u8>> {
        let mut start = Vec::new();
        self.file.rewind()?;
        (&self.file).take(most).read_to_end(&mut start)?;
        Ok(start)
    }

    /// Has what was written to the file put on disk.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        // As for the lock on the name.
        or_debug!(self.file.unlock(), "cannot unlock the database");
        if let Some(at) = locked.iter().position(|it| *it == (process::id(), self.id)) {
            locked.swap_remove(at);
        }
    }
}

#[cfg(unix)]
fn is_locked(locked: &[(u32, FileId)], id: FileId) -> bool {
    locked.contains(&(process::id(), id))
}

/// Files cannot be told apart here; the lock on the name has to do.
#[cfg(not(unix))]
fn is_locked(_: &[(u32, FileId)], _: FileId) -> bool {
    false
}

#[cfg(unix)]
fn lock_file(file: &File, path: &Path) -> StoreResult<()> {
    try_lock_exclusive(file, path)
}

/// Locks are mandatory here: SQLite could not read a file that is locked as a whole.
#[cfg(not(unix))]
fn lock_file(_: &File, _: &Path) -> StoreResult<()> {
    Ok(())
}

fn try_lock_exclusive(file: &File, path: &Path) -> StoreResult<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::Locked(path.to_owned()),
        TryLockError::Error(source) => StoreError::File { path: path.to_owned(), source },
    })
}
