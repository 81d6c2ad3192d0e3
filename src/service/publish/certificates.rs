//! Certificates of reserved domains, and those that the service has obtained by itself.

use std::collections::HashMap;

use crate::api::remote::reserved_domains::ReservedDomain;
use crate::gateway::Gateway;
use crate::service::certificates::{self, ManagedName};
use crate::service::store::{self, View};

/// The names that have a certificate of their own, by what gives it to them.
pub(super) struct PublishedCertificates {
    gateway: Gateway,
    names: HashMap<String, String>,
}

impl PublishedCertificates {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, names: HashMap::new() }
    }

    /// The identifiers of what gives names their certificates.
    pub(super) fn ids(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// Publishes the certificate that was uploaded for a domain, which may be gone.
    pub(super) fn refresh_domain(
        &mut self,
        view: &View<'_>,
        id: &str,
    ) -> Result<(), store::StoreError> {
        let domain: Option<ReservedDomain> = view.find(id)?;
        let chosen = domain.and_then(|domain| domain.domain.zip(domain.certificate));
        let chosen = chosen.map(|(name, certificate)| (name, certificate.id));
        let (name, certificate) = self.replace(view, id, chosen)?;
        if let Some(name) = name {
            self.gateway.authority().named().uploaded.set(&name, certificate);
        }
        Ok(())
    }

    /// Publishes the certificate that was obtained for a name, which may be gone.
    pub(super) fn refresh_managed(
        &mut self,
        view: &View<'_>,
        id: &str,
    ) -> Result<(), store::StoreError> {
        let managed: Option<ManagedName> = view.find(id)?;
        let chosen = managed.and_then(|managed| Some((managed.name, managed.certificate_id?)));
        let (name, certificate) = self.replace(view, id, chosen)?;
        if let Some(name) = name {
            self.gateway.authority().named().obtained.set(&name, certificate);
        }
        Ok(())
    }

    /// Notes which name has a certificate now; gives the name that is to change, and its certificate.
    fn replace(
        &mut self,
        view: &View<'_>,
        id: &str,
        chosen: Option<(String, String)>,
    ) -> Result<(Option<String>, Option<NamedCertificate>), store::StoreError> {
        match chosen {
            Some((name, certificate)) => {
                self.names.insert(id.to_owned(), name.clone());
                Ok((Some(name), certificates::certified(view, &certificate)?))
            }
            None => Ok((self.names.remove(id), None)),
        }
    }
}

type NamedCertificate = std::sync::Arc<rustls::sign::CertifiedKey>;
