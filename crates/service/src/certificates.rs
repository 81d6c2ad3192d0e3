//! How certificates are stored: what a response shows of one, its key, and the names whose certificates
//! the service obtains by itself.

use std::sync::Arc;

use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use ginnel_api::Secret;
use ginnel_api::id::prefix;
use ginnel_api::remote::tls_certificates::{SubjectAlternativeNames, TlsCertificate};
use ginnel_net::tls::certificate;
use ginnel_net::tls::x509::{CertificateFields, LeafFields};

use super::cluster::RowOwner;
use super::store::{Document, StoreResult, Transaction, View};

/// The role of a certificate for the reserved domains that show it.
pub(super) const CERTIFICATE: &str = "certificate";
/// Where the names are unique whose certificates the service obtains by itself.
const MANAGED_NAMES: &str = "acme";

/// The private key of a certificate; it has a document of its own so that no list can show it.
#[derive(Debug, Serialize, Deserialize)]
struct CertificateKey {
    id: String,
    pem: Secret,
}

impl Document for CertificateKey {
    const PREFIX: &'static str = prefix::TLS_CERTIFICATE_KEY;

    fn id(&self) -> &str {
        &self.id
    }
}

/// A name whose certificate the service obtains by itself, and how far that is. Moments are seconds
/// since the Unix epoch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ManagedName {
    pub id: String,
    /// The host name.
    pub name: String,
    /// The certificate, once there is one.
    pub certificate_id: Option<String>,
    /// When the first certificate was issued.
    #[serde(default)]
    pub first_issued_at: Option<u64>,
    /// When the certificate is to be renewed.
    #[serde(default)]
    pub renews_at: Option<u64>,
    /// When the certificate expires.
    #[serde(default)]
    pub expires_at: Option<u64>,
    /// When the attempts began that have not succeeded yet.
    #[serde(default)]
    pub started_at: Option<u64>,
    /// When the next attempt begins.
    #[serde(default)]
    pub retries_at: Option<u64>,
    /// How many attempts have failed since the last success.
    #[serde(default)]
    pub failures: u32,
    /// Why the last one failed.
    #[serde(default)]
    pub failure: Option<ManagedFailure>,
    /// An order that the authority has been asked to fulfil, so that a restart loses nothing.
    #[serde(default)]
    pub pending: Option<PendingOrder>,
    /// The node that obtains the certificate now; none where there is only one.
    #[serde(default)]
    pub node: Option<RowOwner>,
    /// By what the authority sees now that the name leads here, on whichever node it asks.
    #[serde(default)]
    pub challenge: Option<StoredChallenge>,
}

/// What the authority is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredChallenge {
    Http { token: String, authorization: String },
    Tls { digest: Vec<u8> },
}

/// Why a certificate could not be obtained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManagedFailure {
    /// The kind, such as `dns` or `rateLimited`: the last part of an ACME error type.
    pub code: String,
    /// What happened, for a person.
    pub message: String,
}

/// An order with the key that its certificate will be for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PendingOrder {
    pub url: String,
    pub key: Secret,
}

impl Document for ManagedName {
    const PREFIX: &'static str = prefix::MANAGED_NAME;

    fn id(&self) -> &str {
        &self.id
    }
}

impl ManagedName {
    /// What is known of a name.
    pub fn find(view: &View<'_>, name: &str) -> StoreResult<Option<Self>> {
        match view.claimant(MANAGED_NAMES, name)? {
            Some(id) => view.find_document(&id),
            None => Ok(None),
        }
    }

    /// Stores what is known of a name; it gets an identifier the first time.
    pub fn put(&mut self, change: &Transaction<'_>) -> StoreResult<()> {
        if self.id.is_empty() {
            self.id = change.new_id(prefix::MANAGED_NAME)?;
            change.claim_key(MANAGED_NAMES, &self.name, &self.id)?;
        }
        change.put_document(self)
    }
}

fn key_id(certificate_id: &str) -> String {
    let part = certificate_id.rsplit_once('_').map_or(certificate_id, |(_, part)| part);
    format!("{}_{part}", prefix::TLS_CERTIFICATE_KEY)
}

/// Stores a certificate with its key.
pub(super) fn store_certificate(
    change: &Transaction<'_>,
    shown: &TlsCertificate,
    key: Secret,
) -> StoreResult<()> {
    change.put_document(&CertificateKey { id: key_id(&shown.id), pem: key })?;
    change.put_document(shown)
}

/// Removes a certificate with its key; false when there was none.
pub(super) fn remove_certificate(change: &Transaction<'_>, id: &str) -> StoreResult<bool> {
    change.remove_document::<CertificateKey>(&key_id(id))?;
    change.remove_document::<TlsCertificate>(id)
}

/// A certificate with its key, as TLS needs them; none where there is none that can be used.
pub(super) fn load_certified_key(
    view: &View<'_>,
    id: &str,
) -> StoreResult<Option<Arc<CertifiedKey>>> {
    let shown: Option<TlsCertificate> = view.find_document(id)?;
    let key: Option<CertificateKey> = view.find_document(&key_id(id))?;
    let Some((shown, key)) = shown.zip(key) else { return Ok(None) };
    let chain = shown.certificate_pem.unwrap_or_default();
    match certificate::parse_certified_key(chain.as_bytes(), key.pem.0.as_bytes()) {
        Ok(certified) => Ok(Some(certified)),
        // Both were checked before they were stored.
        Err(err) => {
            tracing::error!(certificate = id, %err, "a stored certificate is unusable");
            Ok(None)
        }
    }
}

/// What a response shows of a certificate, but for what the service says of it.
pub(super) fn describe_certificate(pem: String, leaf: LeafFields) -> TlsCertificate {
    let LeafFields { certificate, subject, .. } = leaf;
    let CertificateFields {
        common_name,
        not_before,
        not_after,
        key_usages,
        extended_key_usages,
        ..
    } = certificate;
    TlsCertificate {
        certificate_pem: Some(pem),
        subject_common_name: Some(common_name),
        subject_alternative_names: Some(SubjectAlternativeNames {
            dns_names: Some(leaf.dns_names),
            ips: Some(leaf.ips),
        }),
        not_before: Some(not_before),
        not_after: Some(not_after),
        key_usages: Some(key_usages),
        extended_key_usages: Some(extended_key_usages),
        private_key_type: Some(leaf.key_type.to_owned()),
        issuer_common_name: Some(leaf.issuer_common_name),
        serial_number: Some(leaf.serial_number),
        subject_organization: Some(subject.organization),
        subject_organizational_unit: Some(subject.organizational_unit),
        subject_locality: Some(subject.locality),
        subject_province: Some(subject.province),
        subject_country: Some(subject.country),
        ..TlsCertificate::default()
    }
}
