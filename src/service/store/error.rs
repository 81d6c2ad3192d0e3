//! Why the store failed.

use std::path::PathBuf;

/// Why the store failed, one variant per cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder of the database does not exist.
    #[error("{}: the folder does not exist", .0.display())]
    MissingDirectory(PathBuf),
    /// The path names something other than a file.
    #[error("{}: is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The file is no SQLite database.
    #[error("{}: is not a database", .0.display())]
    NotADatabase(PathBuf),
    /// The database belongs to another program.
    #[error("{}: is a database of another program", .0.display())]
    Foreign(PathBuf),
    /// The database was written by a newer version.
    #[error("{path}: has format {found}, this version reads up to {known}", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
    },
    /// The database is damaged.
    #[error("{path}: is damaged: {problem}", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found first.
        problem: String,
    },
    /// Another process uses the database.
    #[error("{}: is in use by another process", .0.display())]
    Locked(PathBuf),
    /// The file may not be written to.
    #[error("{}: is read-only", .0.display())]
    ReadOnly(PathBuf),
    /// The folder may not be written to; the database needs files beside its own.
    #[error("{}: is in a read-only folder", .0.display())]
    ReadOnlyDirectory(PathBuf),
    /// The operating system refused the file.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// SQLite reported an error.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// A document could not be read or written as JSON.
    #[error("a stored document cannot be read: {0}")]
    Document(#[from] serde_json::Error),
    /// The change was undone, because the commit that held it failed.
    #[error("the change could not be written to disk: {0}")]
    Commit(String),
    /// The operating system gave no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// A change broke off by a panic, and was undone.
    #[error("the change broke off")]
    Panicked,
    /// The store is closed.
    #[error("the database is closed")]
    Closed,
}

/// The error of `getrandom` is no [`std::error::Error`] in the features that we use.
impl From<getrandom::Error> for Error {
    fn from(error: getrandom::Error) -> Self {
        Self::Random(error.to_string())
    }
}
