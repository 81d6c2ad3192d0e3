//! The tables of the file, and what is done with them. Nothing here knows of threads.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};

use ginnel_api::mask;
use ginnel_base::logging::or_debug;

use super::stored::{StoredParts, StoredRecord};
use crate::capture::record::CaptureRecord;

/// What SQLite files of this kind are marked with.
const APPLICATION_ID: i32 = 0x676e_6371;
/// Where that stands, and what every SQLite file begins with.
const APPLICATION_ID_AT: usize = 68;
/// The place of the version in the head of the file.
const VERSION_AT: usize = 60;
/// The problem of a path that is not a plain file.
const NO_FILE: &str = "is a link, or no file";
const MAGIC: &[u8] = b"SQLite format 3\0";
/// The newest form of the tables.
const VERSION: i32 = 1;
/// How long another program may lock the file, before it is taken for an agent.
const BUSY_TIMEOUT: Duration = Duration::from_millis(300);
/// What a row takes beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 128;
/// How many records are read at once, and how many bytes of them, before changes have their turn.
const READ_AT_ONCE: usize = 256;
const READ_BYTES_AT_ONCE: usize = 1 << 20;
/// How many rows are looked at when room is made.
const EVICTED_AT_ONCE: usize = 64;

const SCHEMA: &str = "
    CREATE TABLE captures (
        sequence INTEGER PRIMARY KEY CHECK (sequence BETWEEN 1 AND 4294967295),
        kept INTEGER NOT NULL,
        id TEXT NOT NULL,
        start INTEGER NOT NULL,
        size INTEGER NOT NULL,
        is_pinned INTEGER NOT NULL,
        facts TEXT NOT NULL,
        request_head BLOB NOT NULL,
        request_body BLOB NOT NULL,
        request_trailer BLOB NOT NULL,
        response_head BLOB NOT NULL,
        response_body BLOB NOT NULL,
        response_trailer BLOB NOT NULL,
        messages BLOB NOT NULL
    ) STRICT;
    CREATE INDEX captures_by_age ON captures (is_pinned, kept);
    CREATE INDEX captures_in_order ON captures (is_pinned, sequence, size);
    PRAGMA user_version = 1;
";

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectFileError {
    /// Another agent has it.
    #[error("{} is in use by another agent", mask::path(.0))]
    InUse(PathBuf),
    /// It is of another kind, or so damaged that nobody can tell.
    #[error(
        "{} is damaged, or no file of captured requests; move it away, or name another file",
        mask::path(.0)
    )]
    Foreign(PathBuf),
    /// A later version has written it.
    #[error("{} was written by a newer version of ginnel", mask::path(.0))]
    Newer(PathBuf),
    /// It cannot be opened or made.
    #[error("{}: {source}", mask::path(path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The database says no.
    #[error("{}: {source}", mask::path(path))]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// There is nothing to keep.
    #[error("nothing is captured: inspect_db_size is -1")]
    NothingCaptured,
}

/// How much the file keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileLimits {
    pub bytes: usize,
    /// How long what is not pinned is kept.
    pub age: Duration,
}

/// How far the file is read: what is pinned comes first, and of both the newest.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadPosition {
    is_pinned: bool,
    /// The sequence of the last record that was read.
    before: i64,
}

impl ReadPosition {
    pub const START: Self = Self { is_pinned: true, before: i64::MAX };
    const UNPINNED: Self = Self { is_pinned: false, before: i64::MAX };
}

/// The file, open.
pub(super) struct CaptureDatabase {
    path: PathBuf,
    connection: Connection,
    limits: FileLimits,
    /// What its rows take.
    pub bytes: usize,
}

impl CaptureDatabase {
    /// Opens the file, or makes it. One that is damaged is put aside, and another takes its place.
    ///
    /// # Errors
    /// When another agent uses it, or it is no such file.
    pub fn open(path: &Path, limits: FileLimits) -> Result<Self, InspectFileError> {
        match Self::open_as_it_is(path, limits) {
            Err(FileOpenError::Damaged) => Self::replace_damaged(path, limits),
            // Nobody has it open: it could not have been read otherwise.
            Err(FileOpenError::Foreign) if is_marked(path) => Self::replace_damaged(path, limits),
            opened => opened.map_err(|error| error.with_path(path)),
        }
    }

    /// Puts a damaged file aside, and begins another.
    fn replace_damaged(path: &Path, limits: FileLimits) -> Result<Self, InspectFileError> {
        let failed = |source| InspectFileError::File { path: path.to_owned(), source };
        let aside = put_aside(path).map_err(failed)?;
        tracing::warn!(
            file = %mask::path(path),
            aside = %mask::path(&aside),
            "the file of captured requests is damaged: it is put aside, and a new one begins"
        );
        Self::open_as_it_is(path, limits).map_err(|error| error.with_path(path))
    }

    fn open_as_it_is(path: &Path, limits: FileLimits) -> Result<Self, FileOpenError> {
        make_file(path).map_err(FileOpenError::File)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // The locks are kept as long as the connection.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let (application, pages) = (pragma("application_id")?, pragma("page_count")?);
        if application != APPLICATION_ID && pages > 0 {
            return Err(FileOpenError::Foreign);
        }
        if pragma("user_version")? > VERSION {
            return Err(FileOpenError::Newer);
        }
        make_private(path).map_err(FileOpenError::File)?;
        prepare_database(&connection).map_err(FileOpenError::from_own_file)?;
        let mut database = Self { path: path.to_owned(), connection, limits, bytes: 0 };
        database.bytes = database.sum_sizes().map_err(FileOpenError::from_own_file)?;
        Ok(database)
    }

    fn sum_sizes(&self) -> rusqlite::Result<usize> {
        let sum = "SELECT coalesce(sum(size), 0) FROM captures";
        self.connection.query_row(sum, [], |row| row.get::<_, i64>(0)).map(to_usize)
    }

    /// The largest sequence that is in it; 0 where there is none.
    pub fn last_sequence(&self) -> rusqlite::Result<u32> {
        let newest = "SELECT coalesce(max(sequence), 0) FROM captures";
        let newest = self.connection.query_row(newest, [], |row| row.get::<_, i64>(0))?;
        Ok(u32::try_from(newest).unwrap_or_default())
    }

    /// Some more records from a position on, which moves; none at the end.
    pub fn read_next(
        &self,
        position: &mut ReadPosition,
    ) -> rusqlite::Result<Option<Vec<CaptureRecord>>> {
        let mut select = self.connection.prepare_cached(
            "SELECT sequence, id, start, is_pinned, facts, request_head, request_body, \
             request_trailer, response_head, response_body, response_trailer, messages \
             FROM captures WHERE is_pinned = ?1 AND sequence < ?2 ORDER BY sequence DESC LIMIT ?3",
        )?;
        let (mut records, mut bytes, mut is_at_end) = (Vec::new(), 0, true);
        let mut rows =
            select.query(params![position.is_pinned, position.before, READ_AT_ONCE as i64])?;
        while bytes < READ_BYTES_AT_ONCE
            && let Some(row) = rows.next()?
        {
            is_at_end = false;
            position.before = row.get(0)?;
            let Some(stored) = or_debug!(record_from_row(row), "a row is no captured request")
            else {
                continue;
            };
            bytes += stored.size();
            let id = stored.id.clone();
            let record = or_debug!(stored.into_record(), "a captured request cannot be read");
            if record.is_none() {
                tracing::warn!(request_id = id, "a captured request in the file cannot be read");
            }
            records.extend(record);
        }
        match (is_at_end, position.is_pinned) {
            (true, true) => *position = ReadPosition::UNPINNED,
            (true, false) => return Ok(None),
            (false, _) => {}
        }
        Ok(Some(records))
    }

    /// Makes some changes, all of them or none.
    pub fn apply_changes(
        &mut self,
        changes: impl FnOnce(&mut CaptureChanges<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut made = CaptureChanges { connection: &transaction, bytes: self.bytes };
        changes(&mut made)?;
        made.prune_records(self.limits, Utc::now())?;
        let bytes = made.bytes;
        transaction.commit()?;
        self.bytes = bytes;
        Ok(())
    }

    /// Removes all rows, what they have left in the file and its log, and files that were put aside.
    pub fn clear(&mut self) -> rusqlite::Result<()> {
        self.bytes = 0;
        let cleared = self.connection.execute_batch("DELETE FROM captures; VACUUM;");
        let cleared = cleared.and_then(|()| self.shorten_log());
        remove_aside(&self.path);
        if let Err(error) = cleared {
            // A disk without room has none for a log of removals either: the file goes as a whole.
            tracing::debug!(err = %error, "the file of captured requests is made anew");
            self.connection = Connection::open_in_memory()?;
            remove_files(&self.path).map_err(io_error)?;
            self.connection = match Self::open_as_it_is(&self.path, self.limits) {
                Ok(database) => database.connection,
                Err(error) => return Err(io_error(error.with_path(&self.path))),
            };
        }
        Ok(())
    }

    /// Takes out of the log what was removed from the file.
    pub fn shorten_log(&self) -> rusqlite::Result<()> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy = self.connection.query_row(checkpoint, [], |row| row.get::<_, bool>(0))?;
        if is_busy { Err(io_error("somebody reads the file")) } else { Ok(()) }
    }
}

#[cfg(test)]
impl CaptureDatabase {
    /// Has the file take no more than so many pages, as on a disk that is full.
    pub fn limit_pages(&self, most: i64) {
        let limited =
            self.connection.pragma_update_and_check(None, "max_page_count", most, |_| Ok(()));
        assert!(limited.is_ok());
    }
}

/// Changes that are made together.
pub(super) struct CaptureChanges<'c> {
    connection: &'c Connection,
    bytes: usize,
}

impl CaptureChanges<'_> {
    /// Keeps a record, in place of what was kept of it.
    pub fn save_record(&mut self, record: &StoredRecord) -> rusqlite::Result<()> {
        self.remove_record(record.sequence)?;
        let size = record.size() + ROW_OVERHEAD_BYTES;
        let [
            request_head,
            request_body,
            request_trailer,
            response_head,
            response_body,
            response_trailer,
            messages,
        ] = record.parts.as_columns();
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO captures \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?;
        insert.execute(params![
            record.sequence,
            kept_since_seconds(&record.id),
            record.id,
            record.start.timestamp_micros(),
            size as i64,
            record.is_pinned,
            record.facts,
            request_head,
            request_body,
            request_trailer,
            response_head,
            response_body,
            response_trailer,
            messages,
        ])?;
        self.bytes += size;
        Ok(())
    }

    /// Removes a record, where it is kept.
    pub fn remove_record(&mut self, sequence: u32) -> rusqlite::Result<()> {
        let delete = "DELETE FROM captures WHERE sequence = ?1 RETURNING size";
        let mut delete = self.connection.prepare_cached(delete)?;
        let mut rows = delete.query([sequence])?;
        while let Some(row) = rows.next()? {
            self.bytes = self.bytes.saturating_sub(to_usize(row.get(0)?));
        }
        Ok(())
    }

    /// Removes what is too old, and the oldest of what is too much; what is pinned last.
    fn prune_records(&mut self, limits: FileLimits, now: DateTime<Utc>) -> rusqlite::Result<()> {
        let age = i64::try_from(limits.age.as_secs()).unwrap_or(i64::MAX);
        let oldest = now.timestamp().saturating_sub(age);
        let old = "SELECT sequence FROM captures WHERE is_pinned = 0 AND kept <= ?1";
        for sequence in self.select_sequences(old, oldest)? {
            self.remove_record(sequence)?;
        }
        while self.bytes > limits.bytes {
            let first = "SELECT sequence FROM captures ORDER BY is_pinned, sequence LIMIT ?1";
            let first = self.select_sequences(first, EVICTED_AT_ONCE as i64)?;
            if first.is_empty() {
                break;
            }
            for sequence in first {
                if self.bytes > limits.bytes {
                    self.remove_record(sequence)?;
                }
            }
        }
        Ok(())
    }

    fn select_sequences(&self, select: &str, value: i64) -> rusqlite::Result<Vec<u32>> {
        let mut select = self.connection.prepare_cached(select)?;
        select.query_map([value], |row| row.get(0))?.collect()
    }
}

/// Why a file was not opened.
enum FileOpenError {
    Damaged,
    Foreign,
    Newer,
    File(std::io::Error),
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for FileOpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Foreign,
            _ => Self::Database(error),
        }
    }
}

impl FileOpenError {
    /// Of a file that is known to be of this kind.
    fn from_own_file(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Damaged,
            _ => Self::Database(error),
        }
    }

    fn with_path(self, path: &Path) -> InspectFileError {
        let path = path.to_owned();
        match self {
            Self::Damaged | Self::Foreign => InspectFileError::Foreign(path),
            Self::Newer => InspectFileError::Newer(path),
            Self::File(source) => InspectFileError::File { path, source },
            Self::Database(source) => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    InspectFileError::InUse(path)
                }
                _ => InspectFileError::Database { path, source },
            },
        }
    }
}

/// Brings a file that is this agent's alone into its form, and looks whether it is sound.
fn prepare_database(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    let version =
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))?;
    if version < VERSION {
        connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT;"))?;
    }
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // What was complete survives the end of the agent, however that comes; a loss of power may take
    // the last requests.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.query_row("PRAGMA journal_size_limit = 0", [], |_| Ok(()))?;
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(corrupt, Some(sound)));
    }
    // Takes the lock that keeps others away.
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")
}

fn record_from_row(row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
    let start = DateTime::from_timestamp_micros(row.get(2)?).unwrap_or_default();
    Ok(StoredRecord {
        sequence: row.get(0)?,
        id: row.get(1)?,
        start,
        is_pinned: row.get(3)?,
        facts: row.get(4)?,
        parts: StoredParts {
            request_head: row.get(5)?,
            request_body: row.get(6)?,
            request_trailer: row.get(7)?,
            response_head: row.get(8)?,
            response_body: row.get(9)?,
            response_trailer: row.get(10)?,
            messages: row.get(11)?,
        },
    })
}

/// Since when a record is kept, which its identifier says, in seconds since 1970: what comes from an
/// archive may be older.
fn kept_since_seconds(id: &str) -> i64 {
    id.get(..8).and_then(|time| i64::from_str_radix(time, 16).ok()).unwrap_or_default()
}

/// Makes a file that only its owner may read, unless there is one.
fn make_file(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    match std::fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other(NO_FILE)),
    }
}

/// Has nobody but its owner read a file. By its name: closing one that is open would give up the locks
/// of this process on it.
fn make_private(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _no_modes_here = path;
    Ok(())
}

/// Reports whether a file is of this kind and version, or can be made.
pub(super) fn check_file(path: &Path) -> Result<(), InspectFileError> {
    let failed = |source| InspectFileError::File { path: path.to_owned(), source };
    let (mut file, length) = match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(failed(std::io::Error::other(NO_FILE))),
        Ok(found) => (File::open(path).map_err(failed)?, found.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            return folder.map_or(Ok(()), |folder| match std::fs::metadata(folder) {
                Ok(found) if !found.is_dir() => Err(failed(ErrorKind::NotADirectory.into())),
                found => found.map(drop).map_err(failed),
            });
        }
        Err(error) => return Err(failed(error)),
    };
    if length == 0 {
        return Ok(());
    }
    let mut start = [0; APPLICATION_ID_AT + 4];
    let is_read = file.read_exact(&mut start).is_ok();
    if !is_read || !is_marked_head(&start) {
        return Err(InspectFileError::Foreign(path.to_owned()));
    }
    let version = start.get(VERSION_AT..VERSION_AT + 4).and_then(|it| it.try_into().ok());
    match version.map(i32::from_be_bytes) {
        Some(version) if version > VERSION => Err(InspectFileError::Newer(path.to_owned())),
        _ => Ok(()),
    }
}

/// Whether a file begins as those of this kind do, whatever follows.
fn is_marked(path: &Path) -> bool {
    let mut start = [0; APPLICATION_ID_AT + 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && is_marked_head(&start)
}

fn is_marked_head(start: &[u8; APPLICATION_ID_AT + 4]) -> bool {
    start.starts_with(MAGIC) && start[APPLICATION_ID_AT..] == APPLICATION_ID.to_be_bytes()
}

/// A failure that is not SQLite's own.
fn io_error(error: impl ToString) -> rusqlite::Error {
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    rusqlite::Error::SqliteFailure(failure, Some(error.to_string()))
}

/// The name of a file with something behind it.
fn append_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file and its log.
fn remove_files(path: &Path) -> std::io::Result<()> {
    for path in [path.to_owned(), append_suffix(path, "-wal"), append_suffix(path, "-shm")] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Where a damaged file goes; there is at most one.
fn damaged_path(path: &Path) -> PathBuf {
    append_suffix(path, ".damaged")
}

/// Removes the file that was put aside, where there is one.
fn remove_aside(path: &Path) {
    or_debug!(remove_files(&damaged_path(path)), "the damaged file of captured requests stays");
}

/// Gives a damaged file another name, in place of one that was damaged before.
fn put_aside(path: &Path) -> std::io::Result<PathBuf> {
    let aside = damaged_path(path);
    std::fs::rename(path, &aside)?;
    remove_files(path)?;
    Ok(aside)
}

fn to_usize(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}
