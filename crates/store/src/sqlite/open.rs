//! Opening a database: every check comes before the first byte is written.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use ginnel_api::Origin;
use ginnel_api::id::Ids;
use ginnel_base::files;

use super::database::{Database, SharedDatabase};
use super::lock::{FileLock, NameLock};
use super::migrate;
use super::place::{self, DatabaseFile, FileId};
use super::{create, state};
use crate::{StorageFault, StoreError, StoreResult, Transaction, schema};

/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 64;
/// How many bytes SQLite's header has.
const HEADER_BYTES: u64 = 100;
/// How long is waited for another program that has locked the database.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How large the log stays once all of it has been moved into the file.
const MAX_IDLE_LOG_BYTES: i64 = 4 << 20;

/// What to do with a database that was not closed and has lost its log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MissingLog {
    /// Leave it alone: its last changes are in the log.
    #[default]
    Refuse,
    /// Go on without them.
    Accept,
}

/// A database that is open.
pub(crate) struct OpenDatabase {
    pub(super) connections: Connections,
    pub(super) ids: Ids,
    pub(super) locks: Option<Locks>,
}

/// How it is read and written.
pub(super) enum Connections {
    /// Over as many as there are readers, and one for writing.
    File(Box<(Database, DatabaseFile)>),
    /// Over the only one.
    Memory(SharedDatabase),
}

impl OpenDatabase {
    fn from_file((database, place): (Database, DatabaseFile), ids: Ids, locks: Locks) -> Self {
        let connections = Connections::File(Box::new((database, place)));
        Self { connections, ids, locks: Some(locks) }
    }
}

/// Keeps other services away from a database; dropped after all connections to it.
pub(crate) struct Locks {
    // In this order: the name is free when the file is.
    _file: FileLock,
    _name: NameLock,
}

/// A database in memory, ready for use.
pub(crate) fn open_memory(origin: Origin) -> StoreResult<OpenDatabase> {
    let database = Database::new(Connection::open_in_memory()?)?;
    configure_connection(&database)?;
    migrate::migrate_schema(&database, 0)?;
    let connections = Connections::Memory(Arc::new(Mutex::new(Some(database))));
    Ok(OpenDatabase { connections, ids: Ids::from_origin(origin), locks: None })
}

/// Opens a file; a new database gets what `fill` stores before it gets its name.
pub(crate) fn open_file<E: From<StoreError>>(
    path: &Path,
    origin: Origin,
    missing_log: MissingLog,
    fill: impl FnOnce(&Transaction<'_>) -> Result<(), E>,
) -> Result<OpenDatabase, E> {
    let path = &place::resolve_links(path);
    place::check_place(path)?;
    let name = NameLock::take(path)?;
    create::remove_unfinished(path)?;
    if place::is_new(path) {
        let ids = Ids::from_origin(origin);
        let (file, ()) = create::create_database(path, &ids, fill)?;
        let locks = Locks { _file: file, _name: name };
        return Ok(OpenDatabase::from_file(open_writer(path, schema::NEWEST)?, ids, locks));
    }
    let mut file = FileLock::take(path)?;
    check_other_names(path)?;
    if missing_log == MissingLog::Refuse {
        state::check_log(path)?;
    }
    let schema = check_content(path, &mut file)?;
    if migrate::needs_migration(schema) {
        migrate::back_up(&open_source(path)?, path, schema)?;
    }
    let opened = open_writer(path, schema)?;
    let ids = load_ids(&opened.0, origin)?;
    Ok(OpenDatabase::from_file(opened, ids, Locks { _file: file, _name: name }))
}

/// Makes a file that must not be there, with what `fill` stores.
pub(crate) fn create_file<T, E: From<StoreError>>(
    path: &Path,
    fill: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let path = &place::resolve_links(path);
    place::check_place(path)?;
    let _name = NameLock::take(path)?;
    create::remove_unfinished(path)?;
    if !place::is_new(path) {
        return Err(StoreError::Exists(path.to_owned()).into());
    }
    let (_file, filled) = create::create_database(path, &Ids::default(), fill)?;
    Ok(filled)
}

/// Opens a file that must be there.
pub(crate) fn open_existing(path: &Path) -> StoreResult<OpenDatabase> {
    let path = &place::resolve_links(path);
    place::check_place(path)?;
    if place::is_new(path) {
        return Err(StoreError::Missing(path.to_owned()));
    }
    open_file(path, Origin::default(), MissingLog::Refuse, |_| Ok(()))
}

/// The connection for writing.
fn open_writer(path: &Path, schema: i64) -> StoreResult<(Database, DatabaseFile)> {
    let opened = || {
        let database = Database::new(Connection::open(path)?)?;
        prepare_connection(&database, schema)?;
        let frames = database.log_frames()?;
        Ok((database, DatabaseFile::from_path(path, frames)?))
    };
    opened().map_err(|error| place::translate_error(error, path))
}

/// What makes identifiers: larger than those in the database, wherever the clock has gone since.
fn load_ids(connection: &Connection, origin: Origin) -> StoreResult<Ids> {
    let ids = Ids::from_origin(origin);
    // The last of each kind; no other row is looked at.
    let mut query = connection.prepare(
        "SELECT kind, id FROM resources
         WHERE kind = (SELECT min(kind) FROM resources WHERE kind > ?1) ORDER BY id DESC LIMIT 1",
    )?;
    let mut kind = String::new();
    while let Some((next, id)) =
        query.query_row([&kind], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).optional()?
    {
        if next <= kind {
            return Err(StoreError::Inconsistent("kinds of resources are out of order"));
        }
        ids.continue_after(&id);
        kind = next;
    }
    Ok(ids)
}

/// A connection for reading from a file that [`file()`] has opened.
pub(crate) fn open_reader(path: &Path) -> StoreResult<Database> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Database::new(connection)
}

/// A connection for copying a database of a service that may be in use.
///
/// Only SQLite opens the file: closing any other descriptor would cost a service in this process its
/// locks.
pub(crate) fn open_existing_source(path: &Path) -> StoreResult<Connection> {
    let path = &place::resolve_links(path);
    if place::is_special(path) {
        return Err(StoreError::SpecialName(path.to_owned()));
    }
    if place::is_new(path) {
        return Err(StoreError::Missing(path.to_owned()));
    }
    let opened =
        open_source(path).and_then(|source| migrate::check_owner(&source, path).map(|_| source));
    opened.map_err(|error| place::translate_error(error, path))
}

/// A connection for copying all of a file; nothing that it does has a time limit.
pub(crate) fn open_source(path: &Path) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // The log belongs to whoever writes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Refuses a file whose log is beside another of its names, in the same folder: without the log it
/// would lack the last changes, and with it later it would lose the next ones.
fn check_other_names(path: &Path) -> StoreResult<()> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    let file = path.metadata().map_err(failed)?;
    if !place::has_other_names(&file) {
        return Ok(());
    }
    for entry in files::parent_folder(path).read_dir().map_err(failed)? {
        let other = entry.map_err(failed)?.path();
        let is_same = other
            .symlink_metadata()
            .is_ok_and(|it| FileId::from_metadata(&it) == FileId::from_metadata(&file));
        if is_same && other.file_name() != path.file_name() && place::has_changes_beside(&other) {
            return Err(StoreError::OtherName { path: path.to_owned(), other });
        }
    }
    Ok(())
}

/// Looks into the file through a connection that cannot write; gives its schema, 0 for a new one.
fn check_content(path: &Path, file: &mut FileLock) -> StoreResult<i64> {
    check_start(path, file)?;
    let checked = open_reader(path).and_then(|database| inspect_content(&database, path));
    let checked = match checked {
        // A change that a killed process left half done must be undone before anything is read.
        Err(StoreError::Database(error))
            if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) =>
        {
            let opened = Connection::open(path).map_err(StoreError::from).and_then(Database::new);
            opened.and_then(|database| inspect_content(&database, path))
        }
        checked => checked,
    };
    checked.map_err(|error| place::translate_error(error, path))
}

/// Refuses a file that does not begin like a database, before anything locks it. An empty file is a new database.
pub(super) fn check_unlocked_start(path: &Path) -> StoreResult<()> {
    if place::is_new(path) {
        return Ok(());
    }
    let start = FileLock::peek_start(path, HEADER_BYTES);
    match start.map_err(|source| StoreError::File { path: path.to_owned(), source })? {
        Some(start) => check_header(path, &start),
        None => Ok(()),
    }
}

/// Refuses a file that does not begin like a database.
fn check_start(path: &Path, file: &mut FileLock) -> StoreResult<()> {
    let start = file.read_start(HEADER_BYTES);
    let start = start.map_err(|source| StoreError::File { path: path.to_owned(), source })?;
    check_header(path, &start)
}

fn check_header(path: &Path, start: &[u8]) -> StoreResult<()> {
    if !start.starts_with(MAGIC) {
        return Err(StoreError::NotADatabase(path.to_owned()));
    }
    if start.len() as u64 == HEADER_BYTES {
        return Ok(());
    }
    Err(StoreError::Damaged { path: path.to_owned(), problem: "it ends early".to_owned() })
}

fn inspect_content(connection: &Connection, path: &Path) -> StoreResult<i64> {
    connection.busy_timeout(Duration::ZERO)?;
    let found = migrate::check_owner(connection, path)?;
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    match verdict.as_str() {
        "ok" => Ok(found),
        problem => {
            let problem = problem.replace('\n', " ");
            Err(StoreError::Damaged { path: path.to_owned(), problem })
        }
    }
}

/// Makes a connection ready for writing; it waits for other programs from then on.
fn prepare_connection(connection: &Connection, schema: i64) -> StoreResult<()> {
    connection.busy_timeout(Duration::ZERO)?;
    configure_connection(connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The writer moves the log, once it has seen that the log is whole.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", MAX_IDLE_LOG_BYTES)?;
    migrate::migrate_schema(connection, schema)?;
    match state::set_open(connection) {
        // Reading must go on, and a copy that lacks its log is not noticed until there is space.
        Err(error) if error.fault() == Some(StorageFault::Full) => {
            tracing::warn!("the database cannot say that it is open: {error}");
        }
        said => said?,
    }
    // Reading opens the log, which is compared with the one that has its name from then on.
    connection.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(())
}

pub(crate) fn configure_connection(connection: &Connection) -> StoreResult<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}
