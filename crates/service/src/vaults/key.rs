//! The key of secrets: given by a setting, or made beside a database in a file when the first secret
//! comes. A database notes something encrypted with its key, so that another key is found out at once: with
//! the first secret, or, where nodes share it, when the first of them starts that has a key.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ginnel_api::mask;
use ginnel_base::files;
use ginnel_net::secret_file::read_secret;
use ginnel_store::{Store, StoreResult, Transaction, View};

use super::cipher::{Cipher, CipherError};
use super::names::SECRET_NAMES;
use super::settings::VaultSettings;
use crate::{Error, Refusal, Result, code};

/// The setting of the database with what only its key can read.
const CHECK: &str = "vault_key_check";
/// What follows the name of a database in that of the file with its key.
const SUFFIX: &str = "-vault.key";
/// The setting of the service that names the file with the key.
const SETTING: &str = "vault_key_file";

/// The key of secrets, as soon as there is one.
pub(crate) struct VaultKey {
    place: KeyPlace,
    cipher: OnceLock<Cipher>,
    /// Whether nodes share the database, and must have one key.
    is_shared: bool,
    /// Whether a key that is lost is replaced.
    replaces: bool,
}

/// Where the key is.
enum KeyPlace {
    /// It was given.
    Setting,
    /// In a file beside the database, which may be yet to be made.
    Beside(PathBuf),
    /// With the database, in memory.
    Memory,
    /// Nowhere: nodes that share a database must be given one key.
    Nowhere,
}

/// What a database says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyCheck {
    /// It may be used.
    Passed,
    /// Other nodes that share the database do not know of it yet.
    Unknown,
}

/// Why there is no key that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error(
        "the database has secrets, and this is not the key they are encrypted with: give the service \
         the key that it had, or replace_vault_key if that is lost"
    )]
    Other,
    #[error(
        "the nodes of this database have another key for secrets: give all of them the same one, or start one \
         with replace_vault_key to have its key from now on"
    )]
    OfOtherNodes,
    #[error("the database has secrets, and their key {} is not there: put it back, or give the service \
         replace_vault_key if it is lost", mask::path(.0))]
    Gone(PathBuf),
    #[error(
        "the service has no key for secrets: nodes that share a database need one key for all, 32 bytes \
         in base64, in vault_key_file or vault_key"
    )]
    NotGiven,
    #[error("{} does not hold a key: 32 bytes in base64", mask::path(.0))]
    Malformed(PathBuf),
    #[error("{}: {}", mask::path(.0), .1)]
    File(PathBuf, std::io::Error),
    #[error("there is no key for secrets yet")]
    NotYet,
    #[error("a key could not be made or used")]
    Unexpected,
}

impl From<CipherError> for KeyError {
    fn from(_: CipherError) -> Self {
        Self::Unexpected
    }
}

impl VaultKey {
    /// The key of a service; a file beside the database is read, and not made yet.
    /// The database `is_shared` if nodes use it together.
    pub fn from_options(
        settings: &VaultSettings,
        database: Option<&Path>,
        is_shared: bool,
    ) -> Result<Arc<Self>, Error> {
        let cipher = OnceLock::new();
        let place = match (configured_cipher(settings)?, database) {
            (Some(read), _) => {
                cipher.get_or_init(|| read);
                KeyPlace::Setting
            }
            (None, _) if is_shared => KeyPlace::Nowhere,
            (None, Some(database)) => KeyPlace::Beside(files::with_suffix(database, SUFFIX)),
            (None, None) => KeyPlace::Memory,
        };
        let key = Self { place, cipher, is_shared, replaces: settings.replaces_key };
        match key.cipher() {
            // What is in the file is found out now, and not when the first secret comes.
            Err(error @ (KeyError::Malformed(_) | KeyError::File(..))) => {
                Err(Error::invalid_setting(SETTING, error.to_string()))
            }
            _ => Ok(Arc::new(key)),
        }
    }

    /// The key of a database that is open; the first node of several notes it.
    ///
    /// # Errors
    /// As [`VaultKey::from_options`] and [`VaultKey::check_database`].
    pub async fn of_database(
        store: &Store,
        settings: &VaultSettings,
        database: Option<&Path>,
    ) -> Result<Arc<Self>, Error> {
        let key = Self::from_options(settings, database, store.change_news().is_some())?;
        let checked = key.clone();
        if store.read(move |view| checked.check_database(view)).await? == KeyCheck::Unknown {
            let noted = key.clone();
            store.write(move |change| noted.store_check(change)).await?;
        }
        Ok(key)
    }

    /// Checks that it is the key of a database, where that has secrets, or nodes that have a key.
    ///
    /// # Errors
    /// When there is no key, or another one, and it is not to be replaced.
    pub fn check_database(&self, view: &View<'_>) -> Result<KeyCheck, Error> {
        let unknown = match self.is_shared && self.cipher.get().is_some() {
            true => KeyCheck::Unknown,
            false => KeyCheck::Passed,
        };
        let Some(check) = self.stored_check(view)? else { return Ok(unknown) };
        let Err(error) = self.verify_check(&check) else { return Ok(KeyCheck::Passed) };
        let has_secrets = view.count_claims(SECRET_NAMES)? > 0;
        match error {
            error if self.replaces && has_secrets => {
                tracing::warn!(%error, "secrets cannot be read until they have new values");
                // Nodes that come later have the new key, whether or not a secret has a new value by then.
                Ok(unknown)
            }
            _ if self.replaces => Ok(unknown),
            KeyError::NotGiven if !has_secrets => {
                tracing::warn!(
                    "other nodes have a key for secrets, and this one has none: policies that read secrets \
                     will fail here"
                );
                Ok(KeyCheck::Passed)
            }
            KeyError::Other if !has_secrets => {
                Err(Error::invalid_setting(SETTING, KeyError::OfOtherNodes.to_string()))
            }
            error => Err(Error::invalid_setting(SETTING, error.to_string())),
        }
    }

    /// Notes it for nodes that come later.
    ///
    /// # Errors
    /// As [`VaultKey::check_database`]: another node may have noted its key meanwhile.
    pub fn store_check(&self, change: &Transaction<'_>) -> Result<(), Error> {
        if self.check_database(change)? == KeyCheck::Unknown {
            let sealed = self.cipher().and_then(|cipher| Ok(cipher.seal(CHECK, CHECK)?));
            let sealed =
                sealed.map_err(|error| Error::invalid_setting(SETTING, error.to_string()))?;
            change.store_setting(CHECK, &sealed)?;
        }
        Ok(())
    }

    /// Forgets which key the secrets had, once there are none: a key that is lost then is missed by nobody.
    /// Nodes that share the database go on having theirs.
    pub fn forget_without_secrets(&self, change: &Transaction<'_>) -> StoreResult<()> {
        if self.is_shared {
            return Ok(());
        }
        if change.count_claims(SECRET_NAMES)? == 0 && change.find_setting(CHECK)?.is_some() {
            change.store_setting(CHECK, "")?;
        }
        Ok(())
    }

    /// What the database has noted of its key. One that nodes do not share and that has no secrets may have it
    /// from a database that nodes shared, of which it is a copy: it says nothing there.
    fn stored_check(&self, view: &View<'_>) -> StoreResult<Option<String>> {
        let check = view.find_setting(CHECK)?.filter(|check| !check.is_empty());
        match check {
            Some(_) if !self.is_shared && view.count_claims(SECRET_NAMES)? == 0 => Ok(None),
            check => Ok(check),
        }
    }

    /// Encrypts a value for a row; the first one makes the key, where there is none and none must be given.
    pub fn seal(&self, change: &Transaction<'_>, row: &str, value: &str) -> Result<String> {
        let refused = |error: KeyError| Refusal::new(code::VAULT_KEY, error.to_string());
        let check = self.stored_check(change)?;
        match check.as_ref().map(|check| self.verify_check(check)) {
            Some(Ok(())) => {}
            Some(Err(error)) if !self.replaces => return Err(refused(error)),
            None | Some(Err(_)) => {
                let cipher = match self.cipher() {
                    Err(KeyError::Gone(_) | KeyError::NotYet) => self.create_cipher(),
                    cipher => cipher,
                };
                let cipher = cipher.map_err(refused)?;
                let check = cipher.seal(CHECK, CHECK).map_err(|error| refused(error.into()))?;
                change.store_setting(CHECK, &check)?;
            }
        }
        let sealed = self.cipher().and_then(|cipher| Ok(cipher.seal(row, value)?));
        sealed.map_err(refused)
    }

    /// Decrypts the value of a row.
    ///
    /// # Errors
    /// When there is no key, or another one.
    pub fn open(&self, row: &str, sealed: &str) -> Result<String, KeyError> {
        self.cipher()?.open(row, sealed).map_err(|_| KeyError::Other)
    }

    fn verify_check(&self, check: &str) -> Result<(), KeyError> {
        self.cipher()?.open(CHECK, check).map(drop).map_err(|_| KeyError::Other)
    }

    /// The key, if there is one.
    fn cipher(&self) -> Result<&Cipher, KeyError> {
        if let Some(cipher) = self.cipher.get() {
            return Ok(cipher);
        }
        match &self.place {
            KeyPlace::Beside(path) => match read_cipher(path) {
                Ok(cipher) => Ok(self.cipher.get_or_init(|| cipher)),
                Err(KeyError::File(_, error)) if error.kind() == ErrorKind::NotFound => {
                    Err(KeyError::Gone(path.clone()))
                }
                Err(error) => Err(error),
            },
            KeyPlace::Nowhere => Err(KeyError::NotGiven),
            KeyPlace::Setting | KeyPlace::Memory => Err(KeyError::NotYet),
        }
    }

    /// Makes a key where there is none; only the thread that writes does.
    fn create_cipher(&self) -> Result<&Cipher, KeyError> {
        let (cipher, text) = Cipher::new()?;
        match &self.place {
            KeyPlace::Memory => {}
            KeyPlace::Beside(path) => {
                // Whole, or not at all: half a key would be in the way of the next.
                let staged = files::stage_file(path, text.as_bytes(), files::SECRET_MODE);
                let made = staged.and_then(|staged| files::rename_new(&staged, path));
                made.and_then(|()| files::sync_folder(path))
                    .map_err(|error| KeyError::File(path.clone(), error))?;
            }
            KeyPlace::Setting | KeyPlace::Nowhere => return Err(KeyError::NotGiven),
        }
        Ok(self.cipher.get_or_init(|| cipher))
    }
}

/// The key that the settings give, if they do.
fn configured_cipher(settings: &VaultSettings) -> Result<Option<Cipher>, Error> {
    match (&settings.key, &settings.key_file) {
        (Some(_), Some(_)) => Err(Error::invalid_setting(
            "vault_key",
            "vault_key and vault_key_file exclude each other",
        )),
        (Some(key), None) => match Cipher::from_base64(&key.0) {
            Some(cipher) => Ok(Some(cipher)),
            None => Err(Error::invalid_setting("vault_key", "is not a key: 32 bytes in base64")),
        },
        (None, Some(path)) => read_cipher(path)
            .map(Some)
            .map_err(|error| Error::invalid_setting(SETTING, error.to_string())),
        (None, None) => Ok(None),
    }
}

fn read_cipher(path: &Path) -> Result<Cipher, KeyError> {
    let text = read_secret(path).map_err(|error| KeyError::File(path.to_owned(), error))?;
    Cipher::from_base64(&text.0).ok_or_else(|| KeyError::Malformed(path.to_owned()))
}

/// Nothing of a key is for eyes.
impl std::fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VaultKey(***)")
    }
}
