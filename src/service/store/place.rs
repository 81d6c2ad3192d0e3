//! Where a database is, and whether the files that are open still have its names.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Error;

/// Which file it is, whatever its name: device and inode. Always the same where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(file.dev(), file.ino())
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Self {
        Self(0, 0)
    }
}

/// True when the file has more than one name.
#[cfg(unix)]
pub(super) fn has_other_names(file: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(file) > 1
}

/// Files cannot be told apart here.
#[cfg(not(unix))]
pub(super) fn has_other_names(_: &Metadata) -> bool {
    false
}

/// A database file and its log, as they were when the database was opened.
pub(super) struct Place {
    path: PathBuf,
    log_path: PathBuf,
    file: FileId,
    log: FileId,
    /// The largest size that the file was seen with; it never shrinks.
    size: AtomicU64,
}

impl Place {
    /// The place of a database that is open, with its log.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let log_path = beside(path, "-wal");
        let (file, log) = (metadata(path, path)?, metadata(&log_path, path)?);
        Ok(Self {
            path: path.to_owned(),
            log_path,
            file: FileId::of(&file),
            log: FileId::of(&log),
            size: AtomicU64::new(file.len()),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds out whether what is written now can be found by the name of the database; gives the
    /// size of its log.
    pub(super) fn check(&self) -> Result<u64, Error> {
        let file = metadata(&self.path, &self.path)?;
        if FileId::of(&file) != self.file {
            return Err(self.detached("another file has taken the place of the database"));
        }
        if file.len() < self.size.fetch_max(file.len(), Ordering::Relaxed) {
            return Err(self.detached("the file of the database was cut short"));
        }
        let log = metadata(&self.log_path, &self.path)?;
        if FileId::of(&log) != self.log {
            return Err(Error::Detached {
                path: self.log_path.clone(),
                problem: "another file has taken the place of the database's log",
            });
        }
        Ok(log.len())
    }

    fn detached(&self, problem: &'static str) -> Error {
        Error::Detached { path: self.path.clone(), problem }
    }
}

fn metadata(path: &Path, database: &Path) -> Result<Metadata, Error> {
    path.metadata().map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Error::Detached {
            path: path.to_owned(),
            problem: if path == database {
                "the file of the database is gone"
            } else {
                "the log of the database is gone"
            },
        },
        _ => Error::File { path: path.to_owned(), source },
    })
}

/// The name of a file that belongs to a database.
pub(in crate::service) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The name that a path leads to where its last part is a symbolic link, which need not exist.
///
/// SQLite keeps its log beside that name, so all that belongs to the database is there.
pub(in crate::service) fn resolve(path: &Path) -> PathBuf {
    /// How many links may lead to each other, as in the kernel.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        // What is no link, or cannot be read, is judged by whoever opens it.
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or(target.clone(), |folder| folder.join(&target));
    }
    path
}
