//! How TLS is spoken with the visitors of a site that does not take it from just anybody.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::ca::{Authority, CertificateError};
use super::wanted::TlsTermination;

/// The protocols of a port with TLS, best first.
pub(super) const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// How TLS is spoken with the visitors of a site.
///
/// What a visitor has been asked is known by the guard that asked: a request is served when its
/// connection came by the guard that the site has now.
pub(super) struct Guard {
    /// How TLS is spoken.
    pub config: Arc<ServerConfig>,
    /// True when visitors must show a certificate, so that nobody comes without TLS either.
    pub asks: bool,
}

/// Whom TLS is spoken with, and how.
pub(super) struct Terms {
    /// The versions of TLS.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// Who looks at the certificates of visitors.
    pub visitors: Arc<dyn ClientCertVerifier>,
}

impl Default for Terms {
    /// Everybody may come.
    fn default() -> Self {
        Self { versions: rustls::DEFAULT_VERSIONS, visitors: anybody() }
    }
}

impl Guard {
    /// The guard of a site that speaks HTTP.
    pub(super) fn of_http(
        authority: &Arc<Authority>,
        terms: Terms,
    ) -> Result<Arc<Self>, CertificateError> {
        let asks = terms.visitors.client_auth_mandatory();
        let config = authority.config(&ALPN, terms)?;
        Ok(Arc::new(Self { config, asks }))
    }

    /// The guard of a site for bytes whose TLS ends here.
    pub(super) fn of_bytes(
        authority: &Arc<Authority>,
        termination: &TlsTermination,
        terms: Terms,
    ) -> Result<Arc<Self>, CertificateError> {
        let asks = terms.visitors.client_auth_mandatory();
        let config = match &termination.certificate {
            Some((chain, key)) => config_of(chain, &key.0, terms)?,
            None => authority.config(&[], terms)?,
        };
        Ok(Arc::new(Self { config, asks }))
    }
}

/// How a listener speaks TLS with one certificate; both texts are PEM, the leaf first.
fn config_of(chain: &str, key: &str, terms: Terms) -> Result<Arc<ServerConfig>, CertificateError> {
    let unusable = |problem: &dyn fmt::Display| {
        CertificateError::Tls(rustls::Error::General(problem.to_string()))
    };
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|problem| unusable(&problem))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|problem| unusable(&problem))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(terms.versions)?;
    Ok(Arc::new(builder.with_client_cert_verifier(terms.visitors).with_single_cert(chain, key)?))
}

/// Asks no visitor for a certificate.
fn anybody() -> Arc<dyn ClientCertVerifier> {
    Arc::new(NoClientAuth)
}

/// Lets in only visitors who show a certificate that one of these, in PEM, has signed.
///
/// # Errors
/// With what is wrong with them.
pub(in crate::service) fn only_signed_by(
    authorities: &[u8],
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|problem| problem.to_string())?;
        roots.add(certificate).map_err(|problem| problem.to_string())?;
    }
    if roots.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|problem| problem.to_string())?;
    Ok(verifier)
}
