//! Where a database is, and whether the files that are open still have its names.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ErrorCode;

use ginnel_base::files;

use crate::{StoreError, StoreResult};

/// Which file it is, whatever its name: device and inode. Always the same where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn from_metadata(file: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(file.dev(), file.ino())
    }

    #[cfg(not(unix))]
    pub(super) fn from_metadata(_: &Metadata) -> Self {
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

/// How many bytes the log has before its first frame.
const LOG_HEADER_BYTES: u64 = 32;
/// How many bytes a frame of the log has before its page.
const FRAME_HEADER_BYTES: u64 = 24;
/// What every log begins with, but for the last bit.
const LOG_MAGIC: u32 = 0x377f_0682;

/// What follows the name of a database in those of the files that SQLite keeps beside it.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// A database file and its log, as they were when the database was opened.
pub(crate) struct DatabaseFile {
    path: PathBuf,
    log_path: PathBuf,
    file: FileId,
    log: FileId,
    /// SQLite takes no locks on the log, so that closing this gives up none.
    log_file: File,
    /// How many frames the log had when it was last seen whole.
    log_frames: AtomicU64,
    /// The largest size that the file was seen with; it never shrinks.
    size: AtomicU64,
}

impl DatabaseFile {
    /// The place of a database that is open, with its log of so many frames.
    pub(super) fn from_path(path: &Path, log_frames: u64) -> StoreResult<Self> {
        let log_path = files::with_suffix(path, "-wal");
        let (file, log) = (read_metadata(path, path)?, read_metadata(&log_path, path)?);
        let log_file = File::open(&log_path)
            .map_err(|source| StoreError::File { path: log_path.clone(), source })?;
        Ok(Self {
            path: path.to_owned(),
            log_path,
            file: FileId::from_metadata(&file),
            log: FileId::from_metadata(&log),
            log_file,
            log_frames: AtomicU64::new(log_frames),
            size: AtomicU64::new(file.len()),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds out whether what is written now can be found by the name of the database; gives the
    /// size of its log.
    pub(super) fn check_identity(&self) -> StoreResult<u64> {
        let file = read_metadata(&self.path, &self.path)?;
        if FileId::from_metadata(&file) != self.file {
            return Err(self.detached_error("another file has taken the place of the database"));
        }
        if file.len() < self.size.fetch_max(file.len(), Ordering::Relaxed) {
            return Err(self.detached_error("the file of the database was cut short"));
        }
        let log = read_metadata(&self.log_path, &self.path)?;
        if FileId::from_metadata(&log) != self.log {
            return Err(StoreError::Detached {
                path: self.log_path.clone(),
                problem: "another file has taken the place of the database's log",
            });
        }
        Ok(log.len())
    }

    /// Finds out whether the log holds the frames that SQLite has written to it: it can be cut short
    /// or overwritten in place. Called by the thread that writes alone.
    pub(super) fn check_log(&self, frames: u64) -> StoreResult<()> {
        let last = self.log_frames.load(Ordering::Relaxed);
        // A log that was moved into the file begins anew, with fewer frames or none.
        if frames > 0 && !self.has_frames([last.clamp(1, frames), frames])? {
            return Err(StoreError::Detached {
                path: self.log_path.clone(),
                problem: "the database's log was cut short or overwritten",
            });
        }
        self.log_frames.store(frames, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the log has a header, and these frames belong to it.
    fn has_frames(&self, frames: [u64; 2]) -> StoreResult<bool> {
        let Some(header) = self.read_log::<{ LOG_HEADER_BYTES as usize }>(0)? else {
            return Ok(false);
        };
        let word =
            |at: usize| header[at..at + 4].iter().fold(0, |sum, it| sum << 8 | u32::from(*it));
        let frame_bytes = FRAME_HEADER_BYTES + u64::from(word(8));
        for frame in frames {
            let start = LOG_HEADER_BYTES + (frame - 1) * frame_bytes;
            let found = self.read_log::<{ FRAME_HEADER_BYTES as usize }>(start)?;
            // Both carry the two random numbers that the log got when it began.
            if found.is_none_or(|it| it[8..16] != header[16..24]) {
                return Ok(false);
            }
        }
        let end = LOG_HEADER_BYTES + frames[1] * frame_bytes;
        Ok(word(0) & !1 == LOG_MAGIC
            && self.log_file.metadata().map_err(self.log_failed())?.len() >= end)
    }

    /// Reads from the log; none where it ends before.
    fn read_log<const BYTES: usize>(&self, start: u64) -> StoreResult<Option<[u8; BYTES]>> {
        let (mut file, mut bytes) = (&self.log_file, [0; BYTES]);
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(bytes)).map_err(self.log_failed()),
        }
    }

    fn log_failed(&self) -> impl Fn(std::io::Error) -> StoreError {
        |source| StoreError::File { path: self.log_path.clone(), source }
    }

    fn detached_error(&self, problem: &'static str) -> StoreError {
        StoreError::Detached { path: self.path.clone(), problem }
    }
}

fn read_metadata(path: &Path, database: &Path) -> StoreResult<Metadata> {
    path.metadata().map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::Detached {
            path: path.to_owned(),
            problem: if path == database {
                "the file of the database is gone"
            } else {
                "the log of the database is gone"
            },
        },
        _ => StoreError::File { path: path.to_owned(), source },
    })
}

/// The name that a path leads to where its last part is a symbolic link, which need not exist.
///
/// SQLite keeps its log beside that name, so all that belongs to the database is there.
pub fn resolve_links(path: &Path) -> PathBuf {
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

/// Refuses a copy to what is copied, by whatever name.
pub fn check_other(path: &Path, to: &Path) -> StoreResult<()> {
    let (path, to) = (&resolve_links(path), resolve_links(to));
    let id = |path: &Path| path.metadata().map(|file| FileId::from_metadata(&file)).ok();
    if *path == to || cfg!(unix) && id(path).is_some_and(|path| id(&to) == Some(path)) {
        return Err(StoreError::SameFile(to));
    }
    Ok(())
}

/// Gives a file the owner of the database that it belongs to, or of the folder where there is none: the
/// service, which is another user's, has to open what an administrator has made.
///
/// # Errors
/// When there is a database of another user, whose file only an administrator can make.
#[cfg(unix)]
pub(super) fn inherit_owner(file: &File, database: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let (own, former) = (file.metadata()?, database.metadata());
    let is_former = former.is_ok();
    let of = former.or_else(|_| files::parent_folder(database).metadata())?;
    if (own.uid(), own.gid()) == (of.uid(), of.gid()) {
        return Ok(());
    }
    match fchown(file, Some(of.uid()), Some(of.gid())) {
        Err(error) if is_former && own.uid() != of.uid() => Err(error),
        Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Files have no such owner here.
#[cfg(not(unix))]
pub(super) fn inherit_owner(_: &File, _: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Removes the files that SQLite keeps beside a database.
pub(super) fn remove_companions(path: &Path) -> StoreResult<()> {
    COMPANIONS.iter().try_for_each(|suffix| remove_if_present(&files::with_suffix(path, suffix)))
}

/// True when SQLite has left changes beside a name that are not in the file yet.
pub(super) fn has_changes_beside(path: &Path) -> bool {
    let is_filled =
        |suffix| files::with_suffix(path, suffix).metadata().is_ok_and(|file| file.len() > 0);
    is_filled("-wal") || is_filled("-journal")
}

/// Removes a file that need not be there.
pub(super) fn remove_if_present(path: &Path) -> StoreResult<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(StoreError::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// True where there is no file, or an empty one.
pub(crate) fn is_new(path: &Path) -> bool {
    // What cannot be asked is found out when the file is opened.
    path.metadata().map_or_else(|error| error.kind() == ErrorKind::NotFound, |file| file.len() == 0)
}

/// True for what SQLite takes for something other than the name of a file.
pub(super) fn is_special(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name == ":memory:" || name.starts_with("file:"))
}

/// Refuses what can be seen from outside the file.
pub(crate) fn check_place(path: &Path) -> StoreResult<()> {
    if is_special(path) {
        return Err(StoreError::SpecialName(path.to_owned()));
    }
    let folder = match files::parent_folder(path).metadata() {
        Ok(folder) if folder.is_dir() => folder,
        Ok(_) => return Err(StoreError::MissingDirectory(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(StoreError::MissingDirectory(path.to_owned()));
        }
        Err(source) => return Err(StoreError::File { path: path.to_owned(), source }),
    };
    // The mode is asked rather than tried: an administrator could write regardless.
    if folder.permissions().readonly() {
        return Err(StoreError::ReadOnlyDirectory(path.to_owned()));
    }
    match path.metadata() {
        Ok(file) if !file.is_file() => Err(StoreError::NotAFile(path.to_owned())),
        Ok(file) if file.permissions().readonly() => Err(StoreError::ReadOnly(path.to_owned())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::File { path: path.to_owned(), source }),
    }
}

/// Gives the errors of SQLite that have a name of ours that name.
pub(crate) fn translate_error(error: StoreError, path: &Path) -> StoreError {
    let StoreError::Database(inner) = error else { return error };
    let path = path.to_owned();
    match inner.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::NotADatabase(path),
        Some(ErrorCode::DatabaseCorrupt) => {
            StoreError::Damaged { path, problem: inner.to_string() }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked(path),
        Some(ErrorCode::ReadOnly) => StoreError::ReadOnly(path),
        _ => StoreError::Sqlite { path, source: inner },
    }
}
