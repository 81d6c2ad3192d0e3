//! Certificates of reserved domains, and those that the service has obtained by itself.

use std::collections::{HashMap, HashSet};

use ginnel_api::id::{has_prefix, prefix};
use ginnel_api::remote::reserved_domains::ReservedDomain;
use ginnel_gateway::Gateway;
use ginnel_store::{self as store, View};

use crate::certificates::{self, ManagedName};

/// The names that have a certificate of their own, by what gives it to them.
pub(super) struct PublishedCertificates {
    gateway: Gateway,
    names: HashMap<String, String>,
}

impl PublishedCertificates {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, names: HashMap::new() }
    }

    /// Publishes all certificates of names, after those that are gone were taken back: others may have their
    /// names.
    pub(super) fn publish_all(&mut self, view: &View<'_>) -> store::StoreResult<()> {
        let (domains, managed) =
            (view.all_documents::<ReservedDomain>()?, view.all_documents::<ManagedName>()?);
        let stored: HashSet<&String> =
            domains.iter().map(|it| &it.id).chain(managed.iter().map(|it| &it.id)).collect();
        let mut gone: Vec<_> = self.names.keys().cloned().collect();
        gone.retain(|id| !stored.contains(id));
        for id in &gone {
            match has_prefix(id, prefix::RESERVED_DOMAIN) {
                true => self.publish_domain(view, id, None)?,
                false => self.publish_managed(view, id, None)?,
            }
        }
        for domain in domains {
            self.publish_domain(view, &domain.id.clone(), Some(domain))?;
        }
        for managed in managed {
            self.publish_managed(view, &managed.id.clone(), Some(managed))?;
        }
        Ok(())
    }

    /// Publishes the certificate that was uploaded for a domain, which may be gone.
    pub(super) fn refresh_domain(&mut self, view: &View<'_>, id: &str) -> store::StoreResult<()> {
        let domain = view.find_document(id)?;
        self.publish_domain(view, id, domain)
    }

    fn publish_domain(
        &mut self,
        view: &View<'_>,
        id: &str,
        domain: Option<ReservedDomain>,
    ) -> store::StoreResult<()> {
        let chosen = domain.and_then(|domain| domain.domain.zip(domain.certificate));
        let chosen = chosen.map(|(name, certificate)| (name, certificate.id));
        let (name, certificate) = self.replace_name(view, id, chosen)?;
        if let Some(name) = name {
            self.gateway.authority().named_certificates().uploaded.set(&name, certificate);
        }
        Ok(())
    }

    /// Publishes the certificate that was obtained for a name, which may be gone.
    pub(super) fn refresh_managed(&mut self, view: &View<'_>, id: &str) -> store::StoreResult<()> {
        let managed = view.find_document(id)?;
        self.publish_managed(view, id, managed)
    }

    fn publish_managed(
        &mut self,
        view: &View<'_>,
        id: &str,
        managed: Option<ManagedName>,
    ) -> store::StoreResult<()> {
        let chosen = managed.and_then(|managed| Some((managed.name, managed.certificate_id?)));
        let (name, certificate) = self.replace_name(view, id, chosen)?;
        if let Some(name) = name {
            self.gateway.authority().named_certificates().obtained.set(&name, certificate);
        }
        Ok(())
    }

    /// Notes which name has a certificate now; gives the name that is to change, and its certificate.
    fn replace_name(
        &mut self,
        view: &View<'_>,
        id: &str,
        chosen: Option<(String, String)>,
    ) -> store::StoreResult<(Option<String>, Option<NamedCertificate>)> {
        match chosen {
            Some((name, certificate)) => {
                self.names.insert(id.to_owned(), name.clone());
                Ok((Some(name), certificates::load_certified_key(view, &certificate)?))
            }
            None => Ok((self.names.remove(id), None)),
        }
    }
}

type NamedCertificate = std::sync::Arc<rustls::sign::CertifiedKey>;
