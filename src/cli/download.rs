//! The copy of a database that a running service makes and sends.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::backup::explain_existing;
use super::error::{CliError, Exit};
use crate::api::{Call, Info, remote};
use crate::client::{Client, Error};
use crate::files;
use crate::logging::or_debug;
use crate::service::store::{self, BackupReport, Overwrite, StoreError};

/// Has the service make a copy, and writes it to a file that only its owner can read.
///
/// The file is opened, checked and on disk before it has its name; without success it is removed.
pub(super) fn download(
    client: &Client,
    to: &Path,
    overwrite: Overwrite,
) -> Result<BackupReport, CliError> {
    if overwrite == Overwrite::No && to.symlink_metadata().is_ok() {
        return Err(explain_existing(StoreError::Exists(to.to_owned())));
    }
    // Before the service is asked, which would make a copy for nothing.
    let mut partial = PartialDownload::take(to)?;
    let received = partial.receive(client).and_then(|()| Ok(partial.publish(to, overwrite)?));
    received.inspect_err(|_| {
        or_debug!(std::fs::remove_file(&partial.path), "a copy that is not finished stays");
    })
}

/// The file of a copy that is not complete, which one process writes at a time.
struct PartialDownload {
    path: PathBuf,
    file: File,
}

impl PartialDownload {
    /// Makes the file, in place of one that a killed process has left.
    fn take(to: &Path) -> Result<Self, StoreError> {
        let path = files::staged(to);
        let failed = |source: io::Error| match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::AlreadyExists => StoreError::Locked(path.clone()),
            ErrorKind::NotFound => StoreError::MissingDirectory(files::folder(to).to_owned()),
            _ => StoreError::File { path: path.clone(), source },
        };
        let made = make(&path).or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                // As long as this is open, nobody else takes the same file for one that was left.
                let left = File::open(&path)?;
                left.try_lock()?;
                std::fs::remove_file(&path)?;
                make(&path)
            }
            _ => Err(error),
        });
        let file = made.map_err(failed)?;
        Ok(Self { path, file })
    }

    /// Writes what the service sends.
    fn receive(&mut self, client: &Client) -> Result<(), CliError> {
        let mut written = Ok(());
        let mut sink = |piece: &[u8]| {
            written = self.file.write_all(piece);
            written.is_ok()
        };
        let Info { method, path, .. } = remote::DATABASE_BACKUP;
        let call = Call { method, target: path.to_owned(), body: None };
        let response = client.download(call, &mut sink);
        written.and_then(|()| self.file.sync_all()).map_err(|source| self.failed(source))?;
        match response {
            Err(Error::Interrupted) => Err(CliError::new(Exit::Failed, "interrupted")),
            response => Ok(response?),
        }
    }

    /// Checks the file, and gives it its name.
    fn publish(&self, to: &Path, overwrite: Overwrite) -> Result<BackupReport, StoreError> {
        let report = store::examine(&self.path)?.content;
        overwrite.rename(&self.path, to)?;
        Ok(BackupReport { path: to.to_owned(), ..report })
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::File { path: self.path.clone(), source }
    }
}

fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true);
    let file = files::with_mode(options, files::SECRET_MODE).open(path)?;
    file.try_lock()?;
    Ok(file)
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        crate::service::Error::from(error).into()
    }
}
