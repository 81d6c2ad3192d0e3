//! Copies of a database that may be in use: whole, checked, and complete before they have their name.
//!
//! A copy is one file, without a log beside it, and holds the state of one moment: what was committed
//! before it began and nothing that came later.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::place::{self, FileId};
use super::state;
use crate::files;
use crate::logging::or_debug;
use crate::service::store::{StoreError, schema};

/// How many pages are copied at once.
const PAGES_AT_ONCE: i32 = 1024;
/// How long is slept when the copy cannot go on for a lock.
const BUSY_INTERVAL: Duration = Duration::from_millis(5);

/// Whether a copy may take the name of a file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// A file that is there stays, and the copy fails.
    No,
    /// A file that is there is replaced once the copy is complete.
    Yes,
}

impl Overwrite {
    /// Gives a copy that is complete its name, on disk.
    ///
    /// # Errors
    /// When a file has the name and keeps it, or the copy cannot get it.
    pub fn rename(self, copy: &Path, to: &Path) -> Result<(), StoreError> {
        let named = match self {
            Self::Yes => std::fs::rename(copy, to),
            Self::No => files::rename_new(copy, to),
        };
        named.and_then(|()| files::sync_folder(to)).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => StoreError::Exists(to.to_owned()),
            _ => StoreError::File { path: to.to_owned(), source },
        })
    }
}

/// What a copy holds, as counted in the copy itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The number of its schema.
    pub schema: i64,
    /// How many rows each table has.
    pub rows: Vec<(&'static str, u64)>,
}

/// Copies what `source` can read now to a file that only its owner can read.
///
/// The copy is opened, checked and counted, and put on disk, before it has its name.
pub(super) fn write(
    source: &Connection,
    to: &Path,
    overwrite: Overwrite,
) -> Result<BackupReport, StoreError> {
    if overwrite == Overwrite::No && to.symlink_metadata().is_ok() {
        return Err(StoreError::Exists(to.to_owned()));
    }
    let partial = PartialFile::take(to)?;
    partial.keep_if(|| {
        let report = fill(source, &partial)?;
        partial.publish(to, overwrite)?;
        Ok(BackupReport { path: to.to_owned(), ..report })
    })
}

/// Copies, and compares the copy with what was copied.
pub(super) fn fill(source: &Connection, partial: &PartialFile) -> Result<BackupReport, StoreError> {
    // One state from the first page to the last count, whatever others write meanwhile.
    let moment = source.unchecked_transaction()?;
    let expected = count(&moment, &partial.path)?;
    copy_pages(&moment, &partial.path)?;
    partial.sync()?;
    let report = verify(&partial.path)?;
    if (expected.schema, &expected.rows) != (report.schema, &report.rows) {
        return Err(partial.damaged("it does not hold what was copied"));
    }
    Ok(report)
}

fn copy_pages(source: &Connection, to: &Path) -> Result<(), StoreError> {
    let mut target = Connection::open(to)?;
    // The file is put on disk as a whole, before it gets its name.
    target.pragma_update(None, "synchronous", "OFF")?;
    target.pragma_update(None, "journal_mode", "OFF")?;
    {
        let backup = Backup::new(source, &mut target)?;
        loop {
            match backup.step(PAGES_AT_ONCE)? {
                StepResult::Done => break,
                StepResult::More => {}
                _ => std::thread::sleep(BUSY_INTERVAL),
            }
        }
    }
    // The header of the original asks for a log, which a copy does without.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    // A copy is whole without a log, whatever the original says.
    state::set_closed(&target)?;
    target.close().map_err(|(_, error)| error.into())
}

/// Opens a database that nobody uses and checks all of it.
pub(super) fn verify(path: &Path) -> Result<BackupReport, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    let report = check(&connection, path)?;
    connection.close().map_err(|(_, error)| StoreError::from(error))?;
    Ok(report)
}

/// Checks and counts all that a connection can read.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<BackupReport, StoreError> {
    let verdict: String =
        connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    match verdict.as_str() {
        "ok" => count(connection, path),
        problem => {
            let problem = problem.replace('\n', " ");
            Err(StoreError::Damaged { path: path.to_owned(), problem })
        }
    }
}

fn count(connection: &Connection, path: &Path) -> Result<BackupReport, StoreError> {
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    let schema = number("PRAGMA user_version")?;
    let bytes = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let tables = schema::tables_of(schema).map(|table| {
        let rows = number(&format!("SELECT count(*) FROM {}", table.name))?;
        Ok((table.name, u64::try_from(rows).unwrap_or(0)))
    });
    let rows = tables.collect::<Result<_, StoreError>>()?;
    let bytes = u64::try_from(bytes).unwrap_or(0);
    Ok(BackupReport { path: path.to_owned(), bytes, schema, rows })
}

/// The file of a copy that is not finished, which one process writes at a time.
pub(super) struct PartialFile {
    path: PathBuf,
    file: File,
}

impl PartialFile {
    /// Makes the file, in place of one that a killed process has left.
    pub(super) fn take(to: &Path) -> Result<Self, StoreError> {
        let path = files::staged(to);
        let made = Self::make(&path).or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                // As long as this is open, nobody else takes the same file for one that was left.
                let _left = lock(File::open(&path)?)?;
                std::fs::remove_file(&path)?;
                Self::make(&path)
            }
            _ => Err(error),
        });
        let file = made.map_err(|source| match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::AlreadyExists => StoreError::Locked(path.clone()),
            _ => StoreError::File { path: path.clone(), source },
        })?;
        place::remove_companions(&path)?;
        Ok(Self { path, file })
    }

    fn make(path: &Path) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true);
        let file = lock(files::with_mode(options, files::SECRET_MODE).open(path)?)?;
        // Another process may have taken it for one that was left, before it was locked.
        match FileId::of(&file.metadata()?) == FileId::of(&path.metadata()?) {
            true => Ok(file),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Runs what completes the file; without success the file is removed.
    pub(super) fn keep_if<T>(
        &self,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        work().inspect_err(|_| {
            // The error that led here is the one to report.
            or_debug!(self.remove(), "a copy that is not finished stays");
        })
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync_all().map_err(|source| StoreError::File { path: self.path.clone(), source })
    }

    pub(super) fn publish(&self, to: &Path, overwrite: Overwrite) -> Result<(), StoreError> {
        overwrite.rename(&self.path, to)
    }

    fn remove(&self) -> Result<(), StoreError> {
        place::remove_companions(&self.path)?;
        std::fs::remove_file(&self.path)
            .map_err(|source| StoreError::File { path: self.path.clone(), source })
    }

    fn damaged(&self, problem: &str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), problem: problem.to_owned() }
    }
}

fn lock(file: File) -> std::io::Result<File> {
    file.try_lock()?;
    Ok(file)
}
