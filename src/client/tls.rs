//! Whom to trust.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::ConfigError;
use crate::api::mask;

/// Whom to trust: a bundle of the user's, or the system.
#[derive(Clone)]
pub(super) enum Roots {
    /// The system's certificates, and those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System,
    /// The certificates of a file.
    Bundle(Arc<ClientConfig>),
}

impl Roots {
    /// Reads the bundle at once, so that a wrong path is told where it was given.
    pub(super) fn choose(bundle: Option<PathBuf>) -> Result<Self, ConfigError> {
        let Some(path) = bundle else { return Ok(Self::System) };
        let wrong = |problem: String| {
            ConfigError::new("ca_bundle", format!("{} {problem}", mask::path(&path)))
        };
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(&path)
            .map_err(|error| wrong(format!("cannot be read: {error}")))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(format!("is not PEM: {error}")))?;
            roots.add(certificate).map_err(|error| wrong(format!("holds {error}")))?;
        }
        if roots.is_empty() {
            return Err(wrong("holds no certificate".to_owned()));
        }
        let config = config(roots).map_err(|error| wrong(error.to_string()))?;
        Ok(Self::Bundle(Arc::new(config)))
    }

    /// The configuration for connections; the system's is read once per process, when first needed.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, std::io::Error> {
        static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        match self {
            Self::Bundle(config) => Ok(Arc::clone(config)),
            Self::System => {
                if let Some(config) = SYSTEM.get() {
                    return Ok(Arc::clone(config));
                }
                let config = Arc::new(config(system()).map_err(std::io::Error::other)?);
                Ok(Arc::clone(SYSTEM.get_or_init(|| config)))
            }
        }
    }
}

fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Damaged entries of a system's store are common and concern nobody else.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    // The provider is named here and never made the default of the process, which others share.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
