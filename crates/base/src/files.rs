//! Files that are complete and on disk before they have their names.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// For the owner alone.
pub const SECRET_MODE: u32 = 0o600;
/// For everybody to read.
pub const PUBLIC_MODE: u32 = 0o644;

/// The name of a file that belongs to another, which is beside it.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes a file; until it is complete, the one that had the name keeps it.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let staged = stage_file(path, content, mode)?;
    std::fs::rename(&staged, path)?;
    sync_folder(path)
}

/// Writes a file that must not exist yet.
pub fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    write_and_sync(
        with_mode(OpenOptions::new().write(true).create_new(true), mode).open(path)?,
        content,
    )?;
    sync_folder(path)
}

/// Writes the content for `path` to a file beside it, `<path>.new`; gives its name.
pub fn stage_file(path: &Path, content: &[u8], mode: u32) -> Result<PathBuf> {
    let staged = staged_path(path);
    // Removed rather than reused: its mode might be another.
    match std::fs::remove_file(&staged) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    write_and_sync(
        with_mode(OpenOptions::new().write(true).create_new(true), mode).open(&staged)?,
        content,
    )?;
    Ok(staged)
}

/// The name that the content for `path` has before it is complete.
pub fn staged_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Gives a file another name, which no file must have: unlike renaming, this never replaces one that
/// somebody else makes at this moment.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // Not every file system has links.
        Err(_) => std::fs::rename(from, to),
    }
}

/// Has the names in the folder of `path` put on disk.
pub fn sync_folder(path: &Path) -> Result<()> {
    match File::open(parent_folder(path)).and_then(|folder| folder.sync_all()) {
        // A folder that may not be listed, or a file system without such a thing: the names are in
        // place, and only a loss of power at this moment could take them back.
        Err(error) if is_unsupported(error.kind()) => Ok(()),
        synced => synced,
    }
}

/// The folder that a file is in.
pub fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn is_unsupported(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

fn write_and_sync(mut file: File, content: &[u8]) -> Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

/// Says who may read a file that is made.
pub fn with_mode(options: &mut OpenOptions, mode: u32) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options
}
