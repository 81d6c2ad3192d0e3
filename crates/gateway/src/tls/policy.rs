//! How TLS is spoken with the visitors of a virtual host that does not take it from just anybody.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion};

use ginnel_api::Secret;
use ginnel_net::tls::certificate::{self, Unusable};
use ginnel_net::tls::{self, any_client};
use ginnel_policy::actions::terminate_tls::TlsVersions;

use crate::tls::authority::LocalAuthority;
use crate::tls::certificate_error::CertificateError;

/// The protocols of a port with TLS, best first.
pub const ALPN: [&str; 2] = ["h2", "http/1.1"];

const ONLY_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// With what TLS ends at the service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTerminationSpec {
    /// The certificates and the key, both PEM; without them the service uses its own.
    pub certificate: Option<(String, Secret)>,
    /// The versions of TLS that are spoken.
    pub versions: TlsVersions,
}

/// How TLS is spoken with the visitors of a virtual host.
///
/// What a visitor has been asked is known by the policy that asked: a request is served when its
/// connection came by the policy that the virtual host has now.
pub struct TlsPolicy {
    /// The TLS settings.
    pub config: Arc<ServerConfig>,
    /// True when visitors must show a certificate, so that nobody comes without TLS either.
    pub requires_certificate: bool,
}

/// Whom TLS is spoken with, and how.
pub struct TlsParams {
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

impl TlsParams {
    /// With these versions.
    pub fn from_versions(versions: TlsVersions) -> Self {
        let versions = match versions {
            TlsVersions::All => rustls::DEFAULT_VERSIONS,
            TlsVersions::Only12 => ONLY_12,
            TlsVersions::Only13 => ONLY_13,
        };
        Self { versions, ..Self::default() }
    }
}

impl TlsPolicy {
    /// The policy of a virtual host that speaks HTTP.
    pub fn for_http(
        authority: &Arc<LocalAuthority>,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        Self::new(authority, &ALPN, None, tls_params)
    }

    /// The policy of a virtual host for bytes whose TLS ends here.
    pub fn for_bytes(
        authority: &Arc<LocalAuthority>,
        termination: &TlsTerminationSpec,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        Self::new(authority, &[], Some(termination), tls_params)
    }

    /// The policy of a virtual host that speaks HTTP and has a certificate of its own.
    pub fn for_http_with(
        authority: &Arc<LocalAuthority>,
        termination: &TlsTerminationSpec,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        Self::new(authority, &ALPN, Some(termination), tls_params)
    }

    fn new(
        authority: &Arc<LocalAuthority>,
        protocols: &[&str],
        termination: Option<&TlsTerminationSpec>,
        tls_params: TlsParams,
    ) -> Result<Arc<Self>, CertificateError> {
        let requires_certificate = tls_params.visitors.client_auth_mandatory();
        let certificate = termination.and_then(|termination| termination.certificate.as_ref());
        let config = match certificate {
            Some((chain, key)) => config_from_pem(chain, &key.0, protocols, tls_params)?,
            None => authority.config_with_params(protocols, tls_params)?,
        };
        Ok(Arc::new(Self { config, requires_certificate }))
    }
}

/// How a listener speaks TLS with one certificate; both texts are PEM, the leaf first.
fn config_from_pem(
    chain: &str,
    key: &str,
    protocols: &[&str],
    tls_params: TlsParams,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let certified = certificate::parse_certified_key(chain.as_bytes(), key.as_bytes());
    let certified = certified.map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => CertificateError::Unusable { field: "crt", problem },
        Unusable::Key(problem) => CertificateError::Unusable { field: "key", problem },
    })?;
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut config = tls::server_config(tls_params.versions, tls_params.visitors, resolver)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}
