//! Whom to trust, and who we are.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

use ginnel_api::mask;
use ginnel_net::secret_file::warn_if_readable;

use super::config_error::ConfigError;
use super::options::ClientCert;

/// The byte order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whom to trust, a bundle of the user's or the system, and the certificate to show to servers that
/// ask for one. Clones share their sessions, so that a second connection resumes the first one's.
#[derive(Clone)]
pub(super) enum Roots {
    /// The system's certificates, and those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System,
    /// The same, with a certificate of our own; the configuration is made when first needed.
    SystemWithCertificate(Arc<CertifiedKey>, Arc<OnceLock<Arc<ClientConfig>>>),
    /// The certificates of a file; proxies see no certificate of our own.
    Bundle { to_servers: Arc<ClientConfig>, to_proxies: Arc<ClientConfig> },
}

/// Whom a connection with TLS leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsPeer {
    Server,
    Proxy,
}

impl Roots {
    /// Reads the files at once, so that a wrong path is told where it was given. The certificate
    /// comes with the name of its option.
    pub(super) fn from_files(
        bundle: Option<&PathBuf>,
        certificate: Option<(&'static str, &ClientCert)>,
    ) -> Result<Self, ConfigError> {
        let certificate = certificate.map(|(option, files)| certified_key(option, files));
        let certificate = certificate.transpose()?;
        match (bundle, certificate) {
            (None, None) => Ok(Self::System),
            (None, Some(certificate)) => {
                Ok(Self::SystemWithCertificate(certificate, Arc::default()))
            }
            (Some(path), certificate) => {
                let roots = read_bundle(path)?;
                let config = |certificate| {
                    let config = build_config(roots.clone(), certificate).map(Arc::new);
                    config.map_err(|error| invalid_file("ca_bundle", path, error.to_string()))
                };
                let to_proxies = config(None)?;
                let to_servers = match certificate {
                    Some(certificate) => config(Some(certificate))?,
                    None => Arc::clone(&to_proxies),
                };
                Ok(Self::Bundle { to_servers, to_proxies })
            }
        }
    }

    /// The configuration for connections; the system's certificates are read when first needed, and
    /// without a certificate of our own only once per process.
    pub(super) fn client_config(&self, peer: TlsPeer) -> Result<Arc<ClientConfig>, std::io::Error> {
        static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        match (self, peer) {
            (Self::Bundle { to_servers, .. }, TlsPeer::Server) => Ok(Arc::clone(to_servers)),
            (Self::Bundle { to_proxies, .. }, TlsPeer::Proxy) => Ok(Arc::clone(to_proxies)),
            (Self::SystemWithCertificate(certificate, made), TlsPeer::Server) => {
                system_config(made, Some(certificate))
            }
            (Self::SystemWithCertificate(..), TlsPeer::Proxy) | (Self::System, _) => {
                system_config(&SYSTEM, None)
            }
        }
    }

    /// Whether a file says whom to trust.
    pub(super) fn is_bundle(&self) -> bool {
        matches!(self, Self::Bundle { .. })
    }
}

/// The configuration that trusts the system's certificates, made once.
fn system_config(
    made: &OnceLock<Arc<ClientConfig>>,
    certificate: Option<&Arc<CertifiedKey>>,
) -> Result<Arc<ClientConfig>, std::io::Error> {
    if let Some(config) = made.get() {
        return Ok(Arc::clone(config));
    }
    let config =
        build_config(system_roots(), certificate.cloned()).map_err(std::io::Error::other)?;
    Ok(Arc::clone(made.get_or_init(|| Arc::new(config))))
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Damaged entries of a system's store are common and concern nobody else.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn read_bundle(path: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("ca_bundle", path)? {
        roots
            .add(certificate)
            .map_err(|error| invalid_file("ca_bundle", path, format!("holds {error}")))?;
    }
    Ok(roots)
}

/// The certificates of a file, at least one.
fn read_certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read_pem(option, path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match found.map_err(|error| invalid_file(option, path, pem_problem(&error)))? {
        none if none.is_empty() => Err(invalid_file(option, path, "holds no certificate")),
        found => Ok(found),
    }
}

/// Certificate and key of the user's, which must belong together.
fn certified_key(
    option: &'static str,
    files: &ClientCert,
) -> Result<Arc<CertifiedKey>, ConfigError> {
    let chain = read_certificates(option, &files.chain)?;
    let key = read_pem(option, &files.key)?;
    warn_if_readable(&files.key);
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| {
        let problem = match error {
            pem::Error::NoItemsFound => {
                "holds no private key in PKCS #8, PKCS #1 or SEC 1; encrypted keys cannot be used"
                    .to_owned()
            }
            error => pem_problem(&error),
        };
        invalid_file(option, &files.key, problem)
    })?;
    let certified = CertifiedKey::from_der(chain, key, &crypto_provider());
    certified.map(Arc::new).map_err(|error| {
        let problem = match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let chain = mask::path(&files.chain);
                format!("holds a key that does not belong to the first certificate of {chain:?}")
            }
            error => format!("cannot be used: {error}"),
        };
        invalid_file(option, &files.key, problem)
    })
}

/// Reads a PEM file, without the byte order mark that editors of Windows write.
fn read_pem(option: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let read = std::fs::read(path);
    let content =
        read.map_err(|error| invalid_file(option, path, format!("cannot be read: {error}")))?;
    Ok(content.strip_prefix(BYTE_ORDER_MARK).map(<[u8]>::to_vec).unwrap_or(content))
}

fn pem_problem(error: &pem::Error) -> String {
    format!("is not PEM: {error}")
}

fn invalid_file(option: &'static str, path: &Path, problem: impl Into<String>) -> ConfigError {
    ConfigError::invalid_value(option, format!("{:?}", mask::path(path)), problem)
}

/// The provider is named here and never made the default of the process, which others share.
fn crypto_provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn build_config(
    roots: RootCertStore,
    certificate: Option<Arc<CertifiedKey>>,
) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => builder.with_client_cert_resolver(certificate_resolver(certificate)),
    })
}

/// Shows the certificate to every server that asks for one.
fn certificate_resolver(certificate: Arc<CertifiedKey>) -> Arc<dyn ResolvesClientCert> {
    Arc::new(SingleCertAndKey::from(certificate))
}
