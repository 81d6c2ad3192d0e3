//! Who may speak TLS with HTTPS edges, and how.

use std::sync::Arc;

use rustls::SupportedProtocolVersion;

use crate::api::remote::certificate_authorities::CertificateAuthority;
use crate::api::remote::edges::https::HttpsEdge;
use crate::gateway::Gateway;
use crate::gateway::modules::edge_module::EdgeModule;
use crate::gateway::tls::policy::{TlsParams, TlsPolicy};
use crate::net::tls::only_signed_by;
use crate::service::store::{self, View};

/// What is spoken where TLS 1.2 is too old.
const NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What a TLS policy is made of. Certificates of authorities do not change, so their names will do.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct TlsPolicyPlan {
    authorities: Option<Vec<String>>,
    min_version: Option<String>,
}

impl TlsPolicyPlan {
    /// What an edge wants.
    pub(crate) fn of(edge: &HttpsEdge) -> Self {
        let mutual = edge.mutual_tls.clone().filter(EdgeModule::is_enabled);
        let authorities = mutual.map(|it| it.certificate_authorities.unwrap_or_default());
        let termination = edge.tls_termination.clone().filter(EdgeModule::is_enabled);
        Self {
            authorities: authorities.map(|all| all.into_iter().map(|one| one.id).collect()),
            min_version: termination.and_then(|it| it.min_version),
        }
    }

    /// The policy; none where TLS is as usual.
    ///
    /// # Errors
    /// The inner ones tell what is wrong with the certificates.
    pub(crate) fn tls_policy(
        &self,
        gateway: &Gateway,
        view: &View<'_>,
    ) -> Result<Result<Option<Arc<TlsPolicy>>, String>, store::StoreError> {
        if *self == Self::default() {
            return Ok(Ok(None));
        }
        let mut pem = String::new();
        for id in self.authorities.iter().flatten() {
            let authority = view.find::<CertificateAuthority>(id)?;
            pem += &authority.and_then(|authority| authority.ca_pem).unwrap_or_default();
            pem.push('\n');
        }
        Ok(self.made(gateway, &pem))
    }

    fn made(&self, gateway: &Gateway, pem: &str) -> Result<Option<Arc<TlsPolicy>>, String> {
        let mut terms = TlsParams::default();
        if self.min_version.as_deref() == Some("1.3") {
            terms.versions = NEWEST;
        }
        if self.authorities.is_some() {
            terms.visitors = only_signed_by(pem.as_bytes())?;
        }
        let tls_policy = TlsPolicy::of_http(gateway.authority(), terms);
        tls_policy.map(Some).map_err(|problem| problem.to_string())
    }
}
