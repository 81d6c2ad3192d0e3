//! How TLS is spoken with the visitors of a virtual host that does not take it from just anybody.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::gateway::routing::endpoint_spec::TlsTerminationSpec;
use crate::gateway::tls::authority::Authority;
use crate::gateway::tls::certificate_error::CertificateError;
use crate::net::tls::certificate::{self, Unusable};
use crate::net::tls::{self, any_client};

/// The protocols of a port with TLS, best first.
pub(crate) const ALPN: [&str; 2] = ["h2", "http/1.1"];

/// How TLS is spoken with the visitors of a virtual host.
///
/// What a visitor has been asked is known by the policy that asked: a request is served when its
/// connection came by the policy that the virtual host has now.
pub(crate) struct TlsPolicy {
    /// The TLS settings.
    pub config: Arc<ServerConfig>,
    /// True when visitors must show a certificate, so that nobody comes without TLS either.
    pub requires_certificate: bool,
}

/// Whom TLS is spoken with, and how.
pub(crate) struct TlsParams {
    /// The versions of TLS.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// Who looks at the certificates of visitors.
    pub visitors: Arc<dyn ClientCertVerifier>,
}

impl Default for TlsParams {
    /// Everybody may come.
    fn default() -> Self {
        Self { versions: rustls::DEFAULT_VERSIONS, visitors: any_client() }
    }
}

impl TlsPolicy {
    /// The policy of a virtual host that speaks HTTP.
    pub(crate) fn of_http(
        authority: &Arc<Authority>,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        let requires_certificate = tls_params.visitors.client_auth_mandatory();
        let config = authority.config(&ALPN, tls_params)?;
        Ok(Arc::new(Self { config, requires_certificate }))
    }

    /// The policy of a virtual host for bytes whose TLS ends here.
    pub(crate) fn of_bytes(
        authority: &Arc<Authority>,
        termination: &TlsTerminationSpec,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        let requires_certificate = tls_params.visitors.client_auth_mandatory();
        let config = match &termination.certificate {
            Some((chain, key)) => config_of(chain, &key.0, tls_params)?,
            None => authority.config(&[], tls_params)?,
        };
        Ok(Arc::new(Self { config, requires_certificate }))
    }
}

/// How a listener speaks TLS with one certificate; both texts are PEM, the leaf first.
fn config_of(
    chain: &str,
    key: &str,
    tls_params: TlsParams,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let certified = certificate::certified(chain.as_bytes(), key.as_bytes());
    let certified = certified.map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => CertificateError::Unusable { field: "crt", problem },
        Unusable::Key(problem) => CertificateError::Unusable { field: "key", problem },
    })?;
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    Ok(Arc::new(tls::server_config(tls_params.versions, tls_params.visitors, resolver)?))
}
