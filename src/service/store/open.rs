//! Opening a database: every check comes before the first byte is written.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::Error;
use crate::api::Origin;
use crate::api::id::Ids;

/// Marks a file as ours: "ginl".
const APPLICATION_ID: i64 = 0x6769_6e6c;
/// What every SQLite file begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 64;
/// How long a reader waits for the moment in which the writer restarts the log.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// What leads from each format to the next; their number is the newest format.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE meta (
        name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE resources (
        kind TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE links (
        from_id TEXT NOT NULL, role TEXT NOT NULL, to_id TEXT NOT NULL,
        PRIMARY KEY (from_id, role, to_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX links_to ON links (to_id, role, from_id);
    CREATE TABLE claims (
        space TEXT NOT NULL, key TEXT NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (space, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX claims_owner ON claims (owner, space);
    CREATE TABLE tokens (
        id TEXT NOT NULL PRIMARY KEY, hash BLOB NOT NULL, owner_id TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
"];

/// Keeps other processes away from a database; the operating system frees it with its process.
pub(super) struct Lock {
    _file: File,
}

/// A database in memory, ready for use.
pub(super) fn memory() -> Result<Arc<Mutex<Option<Connection>>>, Error> {
    let connection = Connection::open_in_memory()?;
    configure(&connection)?;
    migrate(&connection, 0)?;
    Ok(Arc::new(Mutex::new(Some(connection))))
}

/// The connection for writing to a file, and the lock on it.
pub(super) fn file(path: &Path) -> Result<(Connection, Lock), Error> {
    check_place(path)?;
    let lock = lock(path)?;
    let format = check_content(path)?;
    create(path)?;
    let connection = Connection::open(path)?;
    let opened = prepare(&connection, format);
    opened.map_err(|error| explain(error, path))?;
    Ok((connection, lock))
}

/// What makes identifiers: larger than those in the database, wherever the clock has gone since.
pub(super) fn ids(connection: &Connection, origin: Origin) -> Result<Ids, Error> {
    let ids = Ids::of(origin);
    // The last of each kind; no other row is looked at.
    let mut query = connection.prepare(
        "SELECT kind, id FROM resources
         WHERE kind = (SELECT min(kind) FROM resources WHERE kind > ?1) ORDER BY id DESC LIMIT 1",
    )?;
    let mut kind = String::new();
    while let Some((next, id)) =
        query.query_row([&kind], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).optional()?
    {
        ids.continue_after(&id);
        kind = next;
    }
    Ok(ids)
}

/// A connection for reading from a file that [`file`] has opened.
pub(super) fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(READER_PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Refuses what can be seen from outside the file.
fn check_place(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = match folder.metadata() {
        Ok(folder) if folder.is_dir() => folder,
        Ok(_) => return Err(Error::MissingDirectory(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Error::MissingDirectory(path.to_owned()));
        }
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    // The mode is asked rather than tried: an administrator could write regardless.
    if folder.permissions().readonly() {
        return Err(Error::ReadOnlyDirectory(path.to_owned()));
    }
    match path.metadata() {
        Ok(file) if !file.is_file() => Err(Error::NotAFile(path.to_owned())),
        Ok(file) if file.permissions().readonly() => Err(Error::ReadOnly(path.to_owned())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(Error::File { path: path.to_owned(), source }),
    }
}

/// Takes the lock beside the database, `<path>-lock`; the file stays, for removing it would race.
fn lock(path: &Path) -> Result<Lock, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push("-lock");
    let name = PathBuf::from(name);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&name);
    let file = opened.map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::ReadOnlyDirectory(path.to_owned())
        }
        _ => Error::File { path: name.clone(), source },
    })?;
    match file.try_lock() {
        Ok(()) => Ok(Lock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(Error::File { path: name, source }),
    }
}

/// Makes the file if there is none, for its owner alone: the secrets of webhooks are in it.
fn create(path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let opened = options.open(path);
    opened.map(drop).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Looks into the file through a connection that cannot write; gives its format, 0 for a new one.
fn check_content(path: &Path) -> Result<usize, Error> {
    if !starts_as_database(path)? {
        return Ok(0);
    }
    let checked = reader(path).and_then(|connection| {
        connection.busy_timeout(Duration::ZERO)?;
        inspect(&connection, path)
    });
    checked.map_err(|error| explain(error, path))
}

/// False for a file that is empty or not there yet.
fn starts_as_database(path: &Path) -> Result<bool, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut start).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    match start.len() {
        0 => Ok(false),
        _ if !start.starts_with(MAGIC) => Err(Error::NotADatabase(path.to_owned())),
        100 => Ok(true),
        _ => Err(Error::Damaged { path: path.to_owned(), problem: "it ends early".to_owned() }),
    }
}

fn inspect(connection: &Connection, path: &Path) -> Result<usize, Error> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let found = number("user_version")?;
    let application = number("application_id")?;
    let empty = !connection.prepare("SELECT 1 FROM sqlite_schema")?.exists(())?;
    if application != APPLICATION_ID && !(application == 0 && found == 0 && empty) {
        return Err(Error::Foreign(path.to_owned()));
    }
    let format = usize::try_from(found).unwrap_or(usize::MAX);
    if format > MIGRATIONS.len() {
        let known = MIGRATIONS.len() as i64;
        return Err(Error::Newer { path: path.to_owned(), found, known });
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    match verdict.as_str() {
        "ok" => Ok(format),
        problem => {
            let problem = problem.replace('\n', " ");
            Err(Error::Damaged { path: path.to_owned(), problem })
        }
    }
}

fn prepare(connection: &Connection, format: usize) -> Result<(), Error> {
    connection.busy_timeout(Duration::ZERO)?;
    configure(connection)?;
    if format == 0 {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    migrate(connection, format)
}

fn configure(connection: &Connection) -> Result<(), Error> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}

fn migrate(connection: &Connection, format: usize) -> Result<(), Error> {
    for (format, migration) in MIGRATIONS.iter().enumerate().skip(format) {
        let next = format + 1;
        let change = connection.unchecked_transaction()?;
        change.execute_batch(migration)?;
        change.pragma_update(None, "user_version", next as i64)?;
        change.commit()?;
    }
    Ok(())
}

/// Gives the errors of SQLite that have a name of ours that name.
fn explain(error: Error, path: &Path) -> Error {
    let Error::Database(inner) = error else { return error };
    let path = path.to_owned();
    match inner.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::NotADatabase(path),
        Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { path, problem: inner.to_string() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked(path),
        Some(ErrorCode::ReadOnly) => Error::ReadOnly(path),
        _ => Error::Database(inner),
    }
}
