//! Files that contain a secret of the service.

use std::path::Path;

use ginnel_api::{Secret, id};

use super::Error;

/// Reads an admin key from a file; space around it is ignored.
///
/// # Errors
/// When the file cannot be read, or holds something else.
pub fn read_admin_key(path: &Path) -> Result<Secret, Error> {
    check_key(read_secret(path)?)
}

/// Reads an authtoken from a file; space around it is ignored.
///
/// # Errors
/// When the file cannot be read.
pub fn read_authtoken(path: &Path) -> Result<Secret, Error> {
    read_secret(path)
}

pub(super) fn read_secret(path: &Path) -> Result<Secret, Error> {
    let failed = |source| Error::SecretFile { path: path.to_owned(), source };
    ginnel_net::secret_file::read_secret(path).map_err(failed)
}

/// Returns an error if a text is not an API key.
pub(super) fn check_key(key: Secret) -> Result<Secret, Error> {
    if id::split_token(&key.0).is_some() { Ok(key) } else { Err(Error::MalformedAdminKey) }
}
