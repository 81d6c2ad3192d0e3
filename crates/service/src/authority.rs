//! The certificate authority of a database. It is in files beside a database in a file; a database on a
//! server holds it itself, so that all nodes show certificates of one authority.

use std::path::PathBuf;
use std::sync::Arc;

use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_gateway::tls::authority_key::AuthorityKey;
use ginnel_net::secret_file::warn_if_readable;
use ginnel_settings::settings;

use super::Error;
use super::store::{Store, StoreError, StoreResult, Transaction, View};

settings! {
    /// A certificate from a file, which is shown for the host names in it.
    #[derive(Debug, Clone)]
    pub struct CertificateSettings {
    }

    /// The settings of the files.
    rows {
        certificate: Option<PathBuf> = None,
            "certificate", "FILE",
            "A PEM file with a certificate for the host names in it; read again at a reload",
            listed_in_help(), live(), with_keyword();
        key: Option<PathBuf> = None,
            "certificate_key", "FILE",
            "A PEM file with the private key of the certificate",
            listed_in_help(), live(), named_keyword("certificate");
    }
}

impl CertificateSettings {
    /// The files, if both are named.
    pub fn files(&self) -> Option<(PathBuf, PathBuf)> {
        self.certificate.clone().zip(self.key.clone())
    }

    /// Checks that both files are named, or none.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (key, missing) = match (&self.certificate, &self.key) {
            (Some(_), None) => ("certificate", "certificate_key"),
            (None, Some(_)) => ("certificate_key", "certificate"),
            _ => return Ok(()),
        };
        Err(Error::Setting { key, problem: format!("{missing} is missing") })
    }
}

/// The setting with the certificate, as PEM.
pub(super) const CERTIFICATE: &str = "ca_certificate";
/// The setting with the key, as PEM.
pub(super) const KEY: &str = "ca_key";
/// What is wrong where one of the two settings is missing.
const INCOMPLETE: StoreError =
    StoreError::Inconsistent("the certificate or the key of its authority is missing");
/// What is wrong where the two cannot be used.
const UNUSABLE: StoreError =
    StoreError::Inconsistent("the certificate of its authority and the key do not belong together");

/// Opens the authority with the key of the database, or else the one beside the file of the database; it
/// is made at the first start. A certificate from a file is shown in its place for its names.
pub(super) async fn open_authority(
    stored: Option<AuthorityKey>,
    database: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
) -> Result<Arc<LocalAuthority>, Error> {
    let opened = ginnel_base::tasks::spawn_blocking(move || {
        let authority = match stored {
            Some(key) => LocalAuthority::from_key(key),
            None => LocalAuthority::open(database.as_deref()),
        };
        let authority = authority.map_err(Error::Authority)?;
        if let Some((chain, key)) = certificate {
            warn_if_readable(&key);
            authority.provide_certificate(&chain, &key)?;
        }
        Ok::<_, Error>(authority)
    });
    opened.await.map_err(|_| StoreError::Panicked)?
}

/// The key of the authority that a database holds; of nodes that start at once, the first stores one
/// and the others use it.
pub(super) async fn stored_or_new(store: &Store) -> Result<AuthorityKey, Error> {
    let read = store.read(find_stored).await?;
    let (certificate, key) = match read {
        Some(stored) => stored,
        None => {
            let made = AuthorityKey::new().map_err(Error::Authority)?;
            let fresh = (made.pem().to_owned(), made.key_pem());
            store.write(move |change| store_if_absent(change, fresh)).await?
        }
    };
    parse_stored((certificate, key))
}

/// The authority that a database held.
pub(super) fn parse_stored((certificate, key): StoredAuthority) -> Result<AuthorityKey, Error> {
    Ok(AuthorityKey::from_pem(&certificate, &key).map_err(|unusable| {
        tracing::error!("the certificate authority in the database is unusable: {unusable}");
        UNUSABLE
    })?)
}

/// The certificate and the key.
pub(super) type StoredAuthority = (String, String);

/// The authority that a database holds.
pub(super) fn find_stored(view: &View<'_>) -> StoreResult<Option<StoredAuthority>> {
    match (view.find_setting(CERTIFICATE)?, view.find_setting(KEY)?) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => Err(INCOMPLETE),
    }
}

fn store_if_absent(
    change: &Transaction<'_>,
    fresh: StoredAuthority,
) -> StoreResult<StoredAuthority> {
    if let Some(stored) = find_stored(change)? {
        return Ok(stored);
    }
    store_authority(change, &fresh)?;
    Ok(fresh)
}

/// Has a database hold an authority.
pub(super) fn store_authority(
    change: &Transaction<'_>,
    authority: &StoredAuthority,
) -> StoreResult<()> {
    change.store_setting(CERTIFICATE, &authority.0)?;
    change.store_setting(KEY, &authority.1)
}
