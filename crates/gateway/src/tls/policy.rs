//! How TLS is spoken with the visitors of a virtual host that does not take it from just anybody.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, SupportedProtocolVersion};

use ginnel_api::Secret;
use ginnel_net::tls::certificate::{self, Unusable};
use ginnel_net::tls::{self, any_client, only_signed_by};
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
/// A connection is made by the policy of one virtual host, and may then carry requests for others. A request is
/// served if the handshake met the policy that the virtual host of the request has now.
pub struct TlsPolicy {
    /// The TLS settings.
    pub config: Arc<ServerConfig>,
    versions: TlsVersionList,
    authorities: Option<Authorities>,
}

/// Versions of TLS.
type TlsVersionList = &'static [&'static SupportedProtocolVersion];

/// The certificates that visitors' certificates must be signed by, sorted.
type Authorities = Arc<[CertificateDer<'static>]>;

/// Whom TLS is spoken with, and how.
pub struct TlsParams {
    /// The versions of TLS.
    pub versions: TlsVersionList,
    /// Who looks at the certificates of visitors.
    pub visitors: Arc<dyn ClientCertVerifier>,
    authorities: Option<Authorities>,
}

impl Default for TlsParams {
    /// Everybody may come.
    fn default() -> Self {
        Self { versions: rustls::DEFAULT_VERSIONS, visitors: any_client(), authorities: None }
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

    /// Requires visitors to show a certificate that one of these, in PEM, has signed.
    ///
    /// # Errors
    /// If the text has no certificate, or one of them cannot be used.
    pub fn require_certificates(&mut self, authorities: &[u8]) -> Result<(), String> {
        self.visitors = only_signed_by(authorities)?;
        let mut certificates = certificate::parse_certificates(authorities)?;
        certificates.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
        certificates.dedup();
        self.authorities = Some(certificates.into());
        Ok(())
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
        let (versions, authorities) = (tls_params.versions, tls_params.authorities.clone());
        let certificate = termination.and_then(|termination| termination.certificate.as_ref());
        let config = match certificate {
            Some((chain, key)) => config_from_pem(chain, &key.0, protocols, tls_params)?,
            None => authority.config_with_params(protocols, tls_params)?,
        };
        Ok(Arc::new(Self { config, versions, authorities }))
    }

    /// Returns true if visitors must show a certificate, and so must use TLS.
    pub fn requires_certificate(&self) -> bool {
        self.authorities.is_some()
    }

    /// Returns true if a handshake by the policy `passed` that agreed on a version met this policy as well.
    pub fn is_met_by(&self, passed: Option<&Self>, version: &str) -> bool {
        let has_version = self.versions.iter().any(|it| it.version.as_str() == Some(version));
        let passed_authorities = passed.and_then(|passed| passed.authorities.as_ref());
        has_version
            && (self.authorities.is_none() || self.authorities.as_ref() == passed_authorities)
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
