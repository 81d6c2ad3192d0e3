//! Making a new database: complete and on disk before it has its name.
//!
//! A process may be killed at any point of this. What it leaves then is either no database, with a
//! file of another name that the next start removes, or a whole one.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

use rusqlite::Connection;

use ginnel_api::id::Ids;
use ginnel_base::files;
use ginnel_base::logging::or_debug;

use super::database::Database;
use super::lock::FileLock;
use super::migrate::migrate_schema;
use super::open::configure_connection;
use super::place::{remove_companions, remove_if_present, translate_error};
use super::tables::SqliteTables;
use crate::{StoreError, StoreResult, Transaction};

/// What follows the name of a database that is being made.
const UNFINISHED: &str = "-unfinished";

/// Makes a database; what `fill` stores is in it from the start. The caller has locked the name.
pub(super) fn create_database<T, E: From<StoreError>>(
    path: &Path,
    ids: &Ids,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<(FileLock, T), E> {
    let unfinished = files::with_suffix(path, UNFINISHED);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true);
    let opened = files::with_mode(options, files::SECRET_MODE).open(&unfinished);
    let file = opened.map_err(|source| StoreError::File { path: unfinished.clone(), source })?;
    let lock = FileLock::of_new(file, &unfinished)?;
    let created = write_database(&unfinished, ids, fill).and_then(|filled| {
        publish_database(&lock, &unfinished, path)?;
        Ok(filled)
    });
    if created.is_err() {
        // The error that led here is the one to report.
        or_debug!(remove_unfinished(path), "a file that is not finished stays");
    }
    created.map(|filled| (lock, filled))
}

/// Removes what a process left that was killed while it made the database.
pub(super) fn remove_unfinished(path: &Path) -> StoreResult<()> {
    let unfinished = files::with_suffix(path, UNFINISHED);
    remove_companions(&unfinished)?;
    remove_if_present(&unfinished)
}

fn write_database<T, E: From<StoreError>>(
    path: &Path,
    ids: &Ids,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let named = |error: StoreError| translate_error(error, path);
    let failed = |error: rusqlite::Error| named(error.into());
    let opened = Connection::open(path).map_err(StoreError::from).and_then(Database::new);
    let database = opened.map_err(named)?;
    prepare_database(&database).map_err(named)?;
    let transaction = database.unchecked_transaction().map_err(failed)?;
    let filled = fill(&Transaction::new(&SqliteTables::from_database(&database), ids))?;
    transaction.commit().map_err(failed)?;
    database.close().map_err(named)?;
    Ok(filled)
}

fn prepare_database(database: &Database) -> StoreResult<()> {
    configure_connection(database)?;
    // The file is put on disk as a whole, before it gets its name.
    database.pragma_update(None, "synchronous", "OFF")?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    migrate_schema(database, 0)
}

/// Gives the database its name.
fn publish_database(lock: &FileLock, unfinished: &Path, path: &Path) -> StoreResult<()> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    lock.sync().map_err(failed)?;
    // SQLite would take them for parts of the new database.
    remove_companions(path)?;
    rename_finished(unfinished, path).map_err(failed)?;
    files::sync_folder(path).map_err(failed)
}

fn rename_finished(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    match path.metadata() {
        // An empty file was put there for us.
        Ok(file) if file.len() == 0 => std::fs::rename(unfinished, path),
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => files::rename_new(unfinished, path),
    }
}
