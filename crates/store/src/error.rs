//! Why the store failed.

use std::path::PathBuf;

use rusqlite::ErrorCode;

use ginnel_api::mask;

/// The result of reading or writing the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why the store failed, one variant per cause.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of the database does not exist.
    #[error("{}: the folder does not exist", mask::path(.0))]
    MissingDirectory(PathBuf),
    /// The path is one of SQLite's special names.
    #[error(
        "{}: is not the name of a file; leave out the path for a database in memory",
        mask::path(.0)
    )]
    SpecialName(PathBuf),
    /// There is no database.
    #[error("{}: does not exist", mask::path(.0))]
    Missing(PathBuf),
    /// The path names something other than a file.
    #[error("{}: is not a file", mask::path(.0))]
    NotAFile(PathBuf),
    /// The file is no SQLite database.
    #[error("{}: is not a database", mask::path(.0))]
    NotADatabase(PathBuf),
    /// The database belongs to another program.
    #[error("{}: is a database of another program", mask::path(.0))]
    Foreign(PathBuf),
    /// The database was written by a newer version.
    #[error("{path}: has format {found}, this version reads up to {known}", path = mask::path(.path))]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
    },
    /// The database cannot hold every text.
    #[error(
        "{path}: has the encoding {found}, and needs UTF8: make it with ENCODING 'UTF8' TEMPLATE template0",
        path = mask::path(.path)
    )]
    Encoding {
        /// The address of the database.
        path: PathBuf,
        /// Its encoding.
        found: String,
    },
    /// The database was not closed, and the log with its last changes is gone.
    #[error(
        "{path}: was not closed, and its last changes are in {log}, which is missing: put it back, \
         restore a backup, or use --force-open to go on without them",
        path = mask::path(.path),
        log = mask::path(.log)
    )]
    LogMissing {
        /// The file.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// There is no copy of the database as it was before its tables change, so they do not change.
    #[error("{path}: cannot copy the database there before it is migrated: {source}", path = mask::path(.path))]
    MigrationBackup {
        /// Where the copy was to be.
        path: PathBuf,
        /// Why there is none.
        source: Box<StoreError>,
    },
    /// A file has the name that a copy is to have.
    #[error("{}: exists already", mask::path(.0))]
    Exists(PathBuf),
    /// A copy is to replace what is copied.
    #[error("{}: is the source of the copy; choose another file", mask::path(.0))]
    SameFile(PathBuf),
    /// What was to be empty is not.
    #[error("{}: holds a database already, and a copy goes to an empty one", mask::path(.0))]
    NotEmpty(PathBuf),
    /// A copy of a table has other rows than the table.
    #[error("the copy of {0} does not hold what was copied")]
    CopyDiffers(&'static str),
    /// The database is damaged.
    #[error("{path}: is damaged: {problem}", path = mask::path(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found first.
        problem: String,
    },
    /// The last changes are beside another name of the same file.
    #[error(
        "{path}: its last changes are in the log of another name of the file; start it as {other} once",
        path = mask::path(.path),
        other = mask::path(.other)
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// Its other name.
        other: PathBuf,
    },
    /// Another process uses the database.
    #[error("{}: is in use by another process", mask::path(.0))]
    Locked(PathBuf),
    /// The file may not be written to.
    #[error("{}: is read-only", mask::path(.0))]
    ReadOnly(PathBuf),
    /// The folder may not be written to; the database needs files beside its own.
    #[error("{}: is in a read-only folder", mask::path(.0))]
    ReadOnlyDirectory(PathBuf),
    /// The operating system refused the file.
    #[error("{path}: {source}", path = mask::path(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// SQLite reported an error.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// SQLite reported an error of a file.
    #[error("{path}: {source}", path = mask::path(.path))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The database server reported an error, or could not be reached.
    #[error("the database failed: {problem}")]
    Server {
        /// What is wrong with the storage, if that was the reason.
        fault: Option<StorageFault>,
        /// What the server said, or why it said nothing.
        problem: String,
    },
    /// A change has read what was not fetched for it; it runs again when that is there.
    #[error("what the change reads has not been fetched yet")]
    Unfetched,
    /// A database of a server is not in a file that could be copied.
    #[error("the database is not in a file: back it up with pg_dump")]
    NoFile,
    /// A document could not be read or written as JSON.
    #[error("a stored document cannot be read: {0}")]
    Document(#[from] serde_json::Error),
    /// What was read cannot be in a database that is whole.
    #[error("the database is damaged: {0}")]
    Inconsistent(&'static str),
    /// Something is to be stored that is there already.
    #[error("{0} is stored already")]
    Duplicate(&'static str),
    /// The file that is open no longer has the name of the database.
    #[error("{problem}")]
    Detached {
        /// The file; not part of the message, which goes to whoever sent the request.
        path: PathBuf,
        /// What has become of it.
        problem: &'static str,
    },
    /// The commit that held the change failed, or went to a file that has lost its name.
    #[error("{}{problem}", if *fault == Some(StorageFault::Uncertain) { "" } else { "the change was not stored: " })]
    Commit {
        /// What is wrong with the storage, if that was the reason.
        fault: Option<StorageFault>,
        /// Why it failed.
        problem: String,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// A change broke off by a panic, and was undone.
    #[error("the change was aborted")]
    Panicked,
    /// Whoever wanted it wants it no more.
    #[error("interrupted before the end; nothing of it is kept")]
    Interrupted,
    /// The store is closed.
    #[error("the database is closed")]
    Closed,
}

/// What is wrong with the storage, when that is why a read or a change failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFault {
    /// Another program holds the lock.
    Locked,
    /// There is no space left.
    Full,
    /// Reading or writing the file failed.
    Io,
    /// The file or its folder cannot be written to.
    ReadOnly,
    /// The file has lost its name: it was deleted, replaced, moved or cut short.
    Detached,
    /// The content makes no sense.
    Damaged,
    /// A statement took too long.
    Timeout,
    /// The database server cannot be reached, or refuses to work.
    Unreachable,
    /// The database server was lost in the middle of a commit, and could not be asked about it since.
    Uncertain,
    /// The database is closed.
    Closed,
}

impl StorageFault {
    /// What is wrong, in words that end a sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::Locked => "another program has locked the database",
            Self::Full => "no space is left for the database",
            Self::Io => "the database file cannot be read or written",
            Self::ReadOnly => "the database file is read-only",
            Self::Detached => "the database file has lost its name, so the database is read-only",
            Self::Damaged => "the database is damaged",
            Self::Timeout => "the database took too long",
            Self::Unreachable => "the database server cannot be reached",
            Self::Uncertain => "it is not known whether the change was stored",
            Self::Closed => "the database is being closed",
        }
    }

    fn from_error_code(code: ErrorCode) -> Option<Self> {
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Some(Self::Locked),
            ErrorCode::DiskFull => Some(Self::Full),
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::NoLargeFileSupport => Some(Self::Io),
            ErrorCode::ReadOnly => Some(Self::ReadOnly),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Some(Self::Damaged),
            ErrorCode::OperationInterrupted => Some(Self::Timeout),
            // The others are mistakes of ours.
            _ => None,
        }
    }
}

impl StoreError {
    /// What is wrong with the storage, when that is the reason; none for a mistake of the program.
    pub fn fault(&self) -> Option<StorageFault> {
        match self {
            Self::Database(error) | Self::Sqlite { source: error, .. } => fault_of(error),
            Self::Commit { fault, .. } | Self::Server { fault, .. } => *fault,
            Self::MigrationBackup { source, .. } => source.fault(),
            Self::Detached { .. } => Some(StorageFault::Detached),
            Self::Document(_) | Self::Inconsistent(_) | Self::Damaged { .. } => {
                Some(StorageFault::Damaged)
            }
            Self::Locked(_) => Some(StorageFault::Locked),
            Self::ReadOnly(_) | Self::ReadOnlyDirectory(_) => Some(StorageFault::ReadOnly),
            Self::File { .. } => Some(StorageFault::Io),
            Self::Closed => Some(StorageFault::Closed),
            _ => None,
        }
    }
}

impl StoreError {
    /// Says which server it is that cannot be used.
    pub(super) fn with_address(self, address: &str) -> Self {
        match self {
            Self::Server { fault, problem } => {
                Self::Server { fault, problem: format!("{address}: {problem}") }
            }
            error => error,
        }
    }
}

fn fault_of(error: &rusqlite::Error) -> Option<StorageFault> {
    match error {
        // What is stored has another type than what we store.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => Some(StorageFault::Damaged),
        error => error.sqlite_error_code().and_then(StorageFault::from_error_code),
    }
}

/// The error of `getrandom` is no [`std::error::Error`] in the features that we use.
impl From<getrandom::Error> for StoreError {
    fn from(error: getrandom::Error) -> Self {
        Self::Random(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn of_sqlite(code: i32) -> StoreError {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn what_sqlite_reports_has_a_fault_of_ours_unless_it_is_a_mistake() {
        for (code, fault) in [
            (ffi::SQLITE_BUSY, Some(StorageFault::Locked)),
            (ffi::SQLITE_LOCKED, Some(StorageFault::Locked)),
            (ffi::SQLITE_FULL, Some(StorageFault::Full)),
            (ffi::SQLITE_IOERR, Some(StorageFault::Io)),
            (ffi::SQLITE_CANTOPEN, Some(StorageFault::Io)),
            (ffi::SQLITE_PROTOCOL, Some(StorageFault::Io)),
            (ffi::SQLITE_PERM, Some(StorageFault::Io)),
            (ffi::SQLITE_NOMEM, Some(StorageFault::Io)),
            (ffi::SQLITE_READONLY, Some(StorageFault::ReadOnly)),
            (ffi::SQLITE_CORRUPT, Some(StorageFault::Damaged)),
            (ffi::SQLITE_NOTADB, Some(StorageFault::Damaged)),
            (ffi::SQLITE_INTERRUPT, Some(StorageFault::Timeout)),
            (ffi::SQLITE_CONSTRAINT, None),
            (ffi::SQLITE_MISUSE, None),
            (ffi::SQLITE_ERROR, None),
        ] {
            assert_eq!(of_sqlite(code).fault(), fault, "{code}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_damage() {
        let (column, kind) = ("body".to_owned(), rusqlite::types::Type::Blob);
        for error in [
            rusqlite::Error::InvalidColumnType(0, column, kind),
            rusqlite::Error::IntegralValueOutOfRange(0, 1 << 40),
            rusqlite::Error::FromSqlConversionFailure(0, kind, "no text".into()),
        ] {
            let message = error.to_string();
            assert_eq!(StoreError::from(error).fault(), Some(StorageFault::Damaged), "{message}");
        }
        assert_eq!(StoreError::from(rusqlite::Error::QueryReturnedNoRows).fault(), None);
    }

    #[test]
    fn each_error_of_a_file_has_its_fault_and_names_the_file() {
        let path = || PathBuf::from("/data/db");
        let problem = || "page 3 is never used".to_owned();
        let source = std::io::Error::other("unplugged");
        for (error, fault, message) in [
            (StoreError::Locked(path()), Some(StorageFault::Locked), "/data/db: is in use by"),
            (StoreError::ReadOnly(path()), Some(StorageFault::ReadOnly), "/data/db: is read-only"),
            (
                StoreError::ReadOnlyDirectory(path()),
                Some(StorageFault::ReadOnly),
                "/data/db: is in a read-only folder",
            ),
            (
                StoreError::File { path: path(), source },
                Some(StorageFault::Io),
                "/data/db: unplugged",
            ),
            (
                StoreError::Damaged { path: path(), problem: problem() },
                Some(StorageFault::Damaged),
                "/data/db: is damaged: page 3 is never used",
            ),
            (StoreError::Missing(path()), None, "/data/db: does not exist"),
            (StoreError::NotAFile(path()), None, "/data/db: is not a file"),
            (StoreError::Foreign(path()), None, "/data/db: is a database of another program"),
            (
                StoreError::Newer { path: path(), found: 9, known: 1 },
                None,
                "/data/db: has format 9, this version reads up to 1",
            ),
            (
                StoreError::OtherName { path: path(), other: "/data/other".into() },
                None,
                "/data/db: its last changes are in the log of another name of the file; start it as \
                 /data/other once",
            ),
        ] {
            let text = error.to_string();
            assert!(text.starts_with(message), "{text}");
            assert_eq!(error.fault(), fault, "{text}");
        }
    }

    #[test]
    fn a_failed_change_passes_on_the_fault_and_hides_the_file() {
        let detached = StoreError::Detached { path: "/secret/db".into(), problem: "it is gone" };
        let full = Some(StorageFault::Full);
        let commit = StoreError::Commit { fault: full, problem: "disk full".to_owned() };

        assert_eq!(detached.fault(), Some(StorageFault::Detached));
        assert_eq!(detached.to_string(), "it is gone");
        assert_eq!(commit.fault(), full);
        assert_eq!(commit.to_string(), "the change was not stored: disk full");
        assert_eq!(StoreError::Closed.fault(), Some(StorageFault::Closed));
        assert_eq!(StoreError::Inconsistent("odd").fault(), Some(StorageFault::Damaged));
        assert_eq!(StoreError::Panicked.fault(), None);
        assert_eq!(StoreError::Random("none".to_owned()).to_string(), "no random bytes: none");
    }
}
