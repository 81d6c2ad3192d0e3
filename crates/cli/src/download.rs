//! The copy of a database that a running service makes and sends.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ginnel_api::{Call, Info, remote};
use ginnel_client::{Client, Error};
use ginnel_store::{BackupReport, CopyTarget, Overwrite, StoreError};

use super::backup::explain_existing;
use super::error::{CliError, CommandResult, Exit};

/// Has the service make a copy, and writes it to a file that only its owner can read.
///
/// The file is opened, checked and on disk before it has its name; without success it is removed.
pub(super) fn download_backup(
    client: &Client,
    to: &Path,
    overwrite: Overwrite,
) -> CommandResult<BackupReport> {
    // Before the service is asked, which would make a copy for nothing.
    let mut target = CopyTarget::for_file(to, overwrite).map_err(explain_existing)?;
    receive_backup(client, target.file(), to)?;
    Ok(target.publish()?.restored)
}

/// Writes what the service sends.
fn receive_backup(client: &Client, file: &mut File, to: &Path) -> CommandResult<()> {
    let mut written = Ok(());
    let mut sink = |piece: &[u8]| {
        written = file.write_all(piece);
        written.is_ok()
    };
    let Info { method, path, .. } = remote::DATABASE_BACKUP;
    let call = Call { method, target: path.to_owned(), body: None };
    let response = client.download(call, &mut sink);
    written.map_err(|source| StoreError::File { path: to.to_owned(), source })?;
    match response {
        Err(Error::Interrupted) => Err(CliError::new(Exit::Failed, "interrupted")),
        response => Ok(response?),
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        ginnel_service::Error::from(error).into()
    }
}
