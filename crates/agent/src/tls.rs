//! TLS towards the service, towards local services, and for visitors whose TLS ends here.

use std::path::Path;
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};

use ginnel_net::tls;
use ginnel_net::tls::certificate::{self, Unusable};

use super::Error;

/// Whose certificates are trusted.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Those of the system.
    #[default]
    System,
    /// Those signed by these, in PEM.
    Pem(Vec<u8>),
    /// Any certificate at all.
    Anything,
}

impl Trust {
    /// The certificates of a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        match certificate::read_file(path) {
            Ok(pem) => Ok(Self::Pem(pem)),
            Err(source) => Err(Error::File { path: path.to_owned(), source }),
        }
    }

    /// How to connect with this trust.
    ///
    /// # Errors
    /// When there is no certificate to trust.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let unusable = |error: rustls::Error| Error::Certificates(error.to_string());
        let roots = match self {
            Self::Anything => {
                return tls::unverified_client_config().map(Arc::new).map_err(unusable);
            }
            Self::System => tls::system_roots(),
            Self::Pem(pem) => tls::parse_roots(pem).map_err(Error::Certificates)?,
        };
        if roots.is_empty() {
            return Err(Error::Certificates("there is no certificate to trust".to_owned()));
        }
        tls::client_config(roots).map(Arc::new).map_err(unusable)
    }
}

/// How visitors are answered whose TLS ends here: with this certificate and key, PEM, and where there
/// are authorities, also PEM, only those who show a certificate of theirs.
///
/// # Errors
/// With the field that is unusable, and why.
pub fn server_config(
    certificate: &[u8],
    key: &[u8],
    authorities: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, (&'static str, String)> {
    let certified =
        certificate::parse_certified_key(certificate, key).map_err(|unusable| match unusable {
            Unusable::Certificate(problem) => ("crt", problem),
            Unusable::Key(problem) => ("key", problem),
        })?;
    let visitors = authorities.map(tls::only_signed_by).transpose();
    let visitors = visitors.map_err(|problem| ("mutual_tls_cas", problem))?;
    let visitors = visitors.unwrap_or_else(tls::any_client);
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let config = tls::server_config(rustls::DEFAULT_VERSIONS, visitors, resolver);
    config.map(Arc::new).map_err(|error| ("crt", error.to_string()))
}
