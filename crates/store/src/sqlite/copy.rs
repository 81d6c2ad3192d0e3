//! Copies of a database that may be in use: whole, checked, and complete before they have their name.
//!
//! A copy is one file, without a log beside it, and holds the state of one moment: what was committed
//! before it began and nothing that came later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, ffi};

use super::state;
use crate::{StoreError, StoreResult, schema};

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

/// Copies to a file; gives what it must hold.
pub(super) fn copy_database(source: &Connection, to: &Path) -> StoreResult<BackupReport> {
    // One state from the first page to the last count, whatever others write meanwhile.
    let moment = source.unchecked_transaction()?;
    let expected = count_rows(&moment, to)?;
    copy_pages(&moment, to).map_err(|error| match error {
        StoreError::Database(error) if is_of_target(&error) => {
            StoreError::Sqlite { path: to.to_owned(), source: error }
        }
        error => error,
    })?;
    Ok(expected)
}

/// Whether an error can only come from writing, which is done to the copy alone.
fn is_of_target(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| matches!(code, ffi::SQLITE_FULL | ffi::SQLITE_IOERR_WRITE))
}

fn copy_pages(source: &Connection, to: &Path) -> StoreResult<()> {
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
pub(super) fn verify_database(path: &Path) -> StoreResult<BackupReport> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    let report = check_integrity(&connection, path)?;
    connection.close().map_err(|(_, error)| StoreError::from(error))?;
    Ok(report)
}

/// Counts what a database that nobody uses holds.
pub(super) fn count_file_rows(path: &Path) -> StoreResult<BackupReport> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    count_rows(&Connection::open_with_flags(path, flags)?, path)
}

/// Checks and counts all that a connection can read.
pub(super) fn check_integrity(connection: &Connection, path: &Path) -> StoreResult<BackupReport> {
    let verdict: String =
        connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    match verdict.as_str() {
        "ok" => count_rows(connection, path),
        problem => {
            let problem = problem.replace('\n', " ");
            Err(StoreError::Damaged { path: path.to_owned(), problem })
        }
    }
}

fn count_rows(connection: &Connection, path: &Path) -> StoreResult<BackupReport> {
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    let schema = number("PRAGMA user_version")?;
    let bytes = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let tables = schema::tables_of(schema).map(|table| {
        let rows = number(&format!("SELECT count(*) FROM {}", table.name))?;
        Ok((table.name, u64::try_from(rows).unwrap_or(0)))
    });
    let rows = tables.collect::<StoreResult<_>>()?;
    let bytes = u64::try_from(bytes).unwrap_or(0);
    Ok(BackupReport { path: path.to_owned(), bytes, schema, rows })
}
