//! Who may speak TLS with HTTPS edges and TLS edges, and how.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;

use ginnel_api::remote::certificate_authorities::CertificateAuthority;
use ginnel_api::remote::edges::modules::MutualTls;
use ginnel_gateway::modules::edge_module::EdgeModule;
use ginnel_gateway::tls::certificate_error::CertificateError;
use ginnel_gateway::tls::policy::{TlsParams, TlsPolicy};
use ginnel_gateway::{Gateway, TlsTerminationSpec};
use ginnel_store::{self as store, View};

/// What is spoken where TLS 1.2 is too old.
const NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What a TLS policy is made of. Certificates of authorities do not change, so their names will do.
#[derive(Default, PartialEq, Eq)]
pub struct TlsPolicyPlan {
    authorities: Option<Vec<String>>,
    min_version: Option<String>,
}

impl TlsPolicyPlan {
    /// What an edge wants.
    pub fn new(mutual_tls: Option<MutualTls>, min_version: Option<String>) -> Self {
        let mutual = mutual_tls.filter(EdgeModule::is_enabled);
        let authorities = mutual.map(|it| it.certificate_authorities.unwrap_or_default());
        let authorities = authorities.map(|all| all.into_iter().map(|one| one.id).collect());
        Self { authorities, min_version }
    }

    /// The policy of an edge for requests; none where TLS is as usual.
    ///
    /// # Errors
    /// The inner ones tell what is wrong with the certificates.
    pub fn tls_policy(
        &self,
        gateway: &Gateway,
        view: &View<'_>,
    ) -> store::StoreResult<Result<Option<Arc<TlsPolicy>>, String>> {
        if *self == Self::default() {
            return Ok(Ok(None));
        }
        let made = |params| TlsPolicy::for_http(gateway.authority(), params);
        Ok(self.build_with(view, made)?.map(Some))
    }

    /// The policy of an edge for bytes.
    ///
    /// # Errors
    /// As for [`TlsPolicyPlan::tls_policy`].
    pub fn tls_policy_of_bytes(
        &self,
        gateway: &Gateway,
        view: &View<'_>,
    ) -> store::StoreResult<Result<Arc<TlsPolicy>, String>> {
        let usual = TlsTerminationSpec::default();
        self.build_with(view, |params| TlsPolicy::for_bytes(gateway.authority(), &usual, params))
    }

    fn build_with(
        &self,
        view: &View<'_>,
        made: impl FnOnce(TlsParams) -> Result<Arc<TlsPolicy>, CertificateError>,
    ) -> store::StoreResult<Result<Arc<TlsPolicy>, String>> {
        let mut pem = String::new();
        for id in self.authorities.iter().flatten() {
            let authority = view.find_document::<CertificateAuthority>(id)?;
            pem += &authority.and_then(|authority| authority.ca_pem).unwrap_or_default();
            pem.push('\n');
        }
        let policy = self
            .to_params(&pem)
            .and_then(|params| made(params).map_err(|problem| problem.to_string()));
        Ok(policy)
    }

    fn to_params(&self, pem: &str) -> Result<TlsParams, String> {
        let mut params = TlsParams::default();
        if self.min_version.as_deref() == Some("1.3") {
            params.versions = NEWEST;
        }
        if self.authorities.is_some() {
            params.require_certificates(pem.as_bytes())?;
        }
        Ok(params)
    }
}
