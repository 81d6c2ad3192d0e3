//! TLS certificates: read when they are uploaded; their keys are kept apart and never shown.

use ginnel_api::Timestamp;
use ginnel_api::remote::tls_certificates::{Create, TlsCertificate, Update};
use ginnel_net::tls::certificate::{self, Unusable};
use ginnel_net::tls::x509::LeafFields;

use crate::certificates::{self, CERTIFICATE};
use crate::handlers::prelude::*;

/// The longest text of certificates or of a key, in bytes.
const MAX_PEM_BYTES: usize = 64 << 10;

impl StoredResource for TlsCertificate {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        // Earlier versions kept the text as it was sent.
        self.certificate_pem = self.certificate_pem.take().map(certificate::without_private_keys);
    }

    /// A certificate that a domain uses cannot be deleted: visitors would not trust the one that replaces it.
    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        check_unused(change, id, &[CERTIFICATE], "TLS certificate", code::CERTIFICATE_IN_USE)?;
        certificates::remove_certificate(change, id)?.then_some(()).ok_or_else(Refusal::not_found)
    }
}

usual_handlers! { tls_certificates }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let Create { certificate_pem, private_key_pem, description, metadata } = params;
    let now = service.shared.origin.timestamp();
    let (certificate_pem, leaf) = parse_certificate(&certificate_pem, &private_key_pem.0, &now)?;
    let create = service.write_resource(move |change| {
        let certificate = TlsCertificate {
            id: change.new_id(prefix::TLS_CERTIFICATE)?,
            created_at: Some(change.now()),
            description: Some(description.unwrap_or_default()),
            metadata: Some(metadata.unwrap_or_default()),
            ..certificates::describe_certificate(certificate_pem, leaf)
        };
        certificates::store_certificate(change, &certificate, private_key_pem)?;
        Ok(certificate)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.write_resource(move |change| {
        let mut certificate: TlsCertificate = find_or_refuse(change, &params.id)?;
        let text = certificate.certificate_pem.take();
        certificate.certificate_pem = text.map(certificate::without_private_keys);
        certificate.description = params.description.or(certificate.description);
        certificate.metadata = params.metadata.or(certificate.metadata);
        stored(change, certificate)
    });
    update.await
}

/// The certificates as they are kept, without what else the text has, such as their key; and what the first
/// one says, if it can be shown to visitors now.
fn parse_certificate(chain: &str, key: &str, now: &Timestamp) -> Result<(String, LeafFields)> {
    let invalid = |field: &str, problem: &str| {
        Refusal::new(code::INVALID_VALUE, format!("{field}: {problem}"))
    };
    for (field, text) in [("certificate_pem", chain), ("private_key_pem", key)] {
        if text.len() > MAX_PEM_BYTES {
            let problem = format!("is {} bytes long, the limit is {MAX_PEM_BYTES}", text.len());
            return Err(invalid(field, &problem));
        }
    }
    let certified = certificate::parse_certified_key(chain.as_bytes(), key.as_bytes());
    let certified = certified.map_err(|unusable| match unusable {
        Unusable::Certificate(problem) => invalid("certificate_pem", &problem),
        Unusable::Key(problem) if problem == certificate::MISMATCH => {
            Refusal::new(code::CERTIFICATE_MISMATCH, format!("private_key_pem: {problem}"))
        }
        Unusable::Key(problem) => invalid("private_key_pem", &problem),
    })?;
    let leaf = certified.cert.first().and_then(|leaf| LeafFields::from_der(leaf));
    let leaf = leaf.ok_or_else(|| invalid("certificate_pem", "cannot be read"))?;
    if leaf.certificate.not_after.0 <= now.0 {
        let problem = format!("expired at {}", leaf.certificate.not_after.0);
        return Err(invalid("certificate_pem", &problem));
    }
    Ok((certificate::encode_pem_chain(&certified.cert), leaf))
}
