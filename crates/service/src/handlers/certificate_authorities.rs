//! Certificate authorities: read when they are uploaded, kept as long as an edge uses them.

use ginnel_api::remote::certificate_authorities::{CertificateAuthority, Create, Update};
use ginnel_net::tls::x509::{self, CertificateFields};
use ginnel_net::tls::{certificate, only_signed_by};

use crate::handlers::prelude::*;

/// The role of an authority for the edges whose visitors it vouches for.
pub(super) const AUTHORITY: &str = "certificate_authority";
/// The longest text of certificates, in bytes.
const MAX_PEM_BYTES: usize = 64 << 10;

impl StoredResource for CertificateAuthority {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        // Earlier versions kept the text as it was sent.
        self.ca_pem = self.ca_pem.take().map(certificate::without_private_keys);
    }

    /// An authority that an edge uses cannot be deleted: the edge could only admit all visitors or none.
    fn remove(change: &Transaction<'_>, id: &str, _: &RemovalContext) -> Result<()> {
        check_unused(change, id, &[AUTHORITY], "certificate authority", code::AUTHORITY_IN_USE)?;
        remove_or_refuse::<Self>(change, id)
    }
}

usual_handlers! { certificate_authorities }

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let (ca_pem, certificate) = parse_authorities(&params.ca_pem)?;
    let create = service.write_resource(move |change| {
        stored(
            change,
            new_item!(change, params => CertificateAuthority {
                ca_pem: Some(ca_pem),
                subject_common_name: Some(certificate.common_name),
                not_before: Some(certificate.not_before),
                not_after: Some(certificate.not_after),
                key_usages: Some(certificate.key_usages),
                extended_key_usages: Some(certificate.extended_key_usages),
            }),
        )
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    let update = service.write_resource(move |change| {
        let mut authority: CertificateAuthority = find_or_refuse(change, &params.id)?;
        authority.ca_pem = authority.ca_pem.take().map(certificate::without_private_keys);
        authority.description = params.description.or(authority.description);
        authority.metadata = params.metadata.or(authority.metadata);
        stored(change, authority)
    });
    update.await
}

/// Why a certificate is not that of an authority.
fn not_authority(der: &[u8]) -> String {
    match x509::certificate_version(der) {
        Some(version @ 1..=2) => {
            format!("it is X.509 version {version}, which cannot say that it is")
        }
        _ => "it has no basic constraint CA".to_owned(),
    }
}

/// The certificates as they are kept, without what else the text has, such as a key; and what the first one
/// says. All must be those of authorities.
fn parse_authorities(pem: &str) -> Result<(String, CertificateFields)> {
    let invalid = |problem: &str| Refusal::new(code::INVALID_VALUE, format!("ca_pem: {problem}"));
    if pem.len() > MAX_PEM_BYTES {
        let problem = format!("is {} bytes long, the limit is {MAX_PEM_BYTES}", pem.len());
        return Err(invalid(&problem));
    }
    let mut first = None;
    let certificates =
        certificate::parse_certificates(pem.as_bytes()).map_err(|it| invalid(&it))?;
    for certificate in &certificates {
        let read = CertificateFields::from_der(certificate)
            .ok_or_else(|| invalid("a certificate cannot be read"))?;
        if !read.is_authority {
            let problem = format!(
                "{:?} is not the certificate of an authority: {}",
                read.common_name,
                not_authority(certificate)
            );
            return Err(invalid(&problem));
        }
        first.get_or_insert(read);
    }
    only_signed_by(pem.as_bytes()).map_err(|problem| invalid(&problem))?;
    let first = first.ok_or_else(|| invalid("holds no certificate in PEM"))?;
    Ok((certificate::encode_pem_chain(&certificates), first))
}
