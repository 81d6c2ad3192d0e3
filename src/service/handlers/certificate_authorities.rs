//! Certificate authorities: read when they are uploaded, kept as long as an edge uses them.

use super::{Context, Handler, Reply, on, resource};
use crate::api::id::{self, prefix};
use crate::api::remote::certificate_authorities::{
    CertificateAuthority, Create, Delete, Get, List, Update,
};
use crate::gateway::tls::policy;
use crate::net::certificate;
use crate::service::certificate::Certificate;
use crate::service::context::{found, remove, wrong_prefix};
use crate::service::store::Transaction;
use crate::service::{Refusal, code};

/// The role of an authority for the edges whose visitors it vouches for.
pub(super) const AUTHORITY: &str = "certificate_authority";
/// The longest text of certificates, in bytes.
const LONGEST: usize = 64 << 10;

resource! { CertificateAuthority = CERTIFICATE_AUTHORITY }

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(create), on(list), on(get), on(update), on(delete)]
}

async fn create(service: Context, wanted: Create) -> Reply<Create> {
    let certificate = read(&wanted.ca_pem)?;
    let create = service.change(move |change| {
        let authority = CertificateAuthority {
            id: change.new_id(prefix::CERTIFICATE_AUTHORITY)?,
            created_at: Some(change.now()),
            description: Some(wanted.description.unwrap_or_default()),
            metadata: Some(wanted.metadata.unwrap_or_default()),
            ca_pem: Some(wanted.ca_pem),
            subject_common_name: Some(certificate.common_name),
            not_before: Some(certificate.not_before),
            not_after: Some(certificate.not_after),
            key_usages: Some(certificate.key_usages),
            extended_key_usages: Some(certificate.extended_key_usages),
            ..CertificateAuthority::default()
        };
        change.put(&authority)?;
        Ok(authority)
    });
    create.await
}

async fn list(service: Context, wanted: List) -> Reply<List> {
    service.page::<List, _>(wanted.before_id, wanted.limit)
}

async fn get(service: Context, wanted: Get) -> Reply<Get> {
    service.find(&wanted.id)
}

async fn update(service: Context, wanted: Update) -> Reply<Update> {
    let update = service.change(move |change| {
        let mut authority: CertificateAuthority = found(change, &wanted.id)?;
        authority.description = wanted.description.or(authority.description);
        authority.metadata = wanted.metadata.or(authority.metadata);
        change.put(&authority)?;
        Ok(authority)
    });
    update.await
}

/// An edge that lost its authority would have to let in everybody or nobody, so it keeps it.
async fn delete(service: Context, wanted: Delete) -> Reply<Delete> {
    let delete = service.write(move |change| {
        if let Some(user) = change.referrers(&wanted.id, AUTHORITY)?.first() {
            let message = format!("the certificate authority is in use by {user}");
            return Err(Refusal::new(code::AUTHORITY_IN_USE, message));
        }
        remove::<CertificateAuthority>(change, &wanted.id)
    });
    delete.await
}

/// Refuses identifiers in a body that are not those of authorities.
pub(super) fn check_prefixes(ids: &[String]) -> Result<(), Refusal> {
    let known = prefix::CERTIFICATE_AUTHORITY;
    let wrong = ids.iter().enumerate().find(|(_, id)| !id::has_prefix(id, known));
    wrong.map_or(Ok(()), |(index, id)| {
        Err(wrong_prefix(&format!("certificate_authority_ids[{index}]"), id, known))
    })
}

/// Refuses an identifier in a body that no authority has.
pub(super) fn check_exists(change: &Transaction<'_>, id: &str) -> Result<(), Refusal> {
    if change.exists(id)? {
        return Ok(());
    }
    let message = format!("certificate_authority_ids: there is no certificate authority {id:?}");
    Err(Refusal::new(code::AUTHORITY_UNKNOWN, message))
}

/// Why a certificate is not that of an authority.
fn not_authority(der: &[u8]) -> String {
    match certificate::version(der) {
        Some(version @ 1..=2) => {
            format!("it is X.509 version {version}, which cannot say that it is")
        }
        _ => "it has no basic constraint CA".to_owned(),
    }
}

/// What the first certificate says; all must be those of authorities.
fn read(pem: &str) -> Result<Certificate, Refusal> {
    let invalid = |problem: &str| Refusal::new(code::INVALID_VALUE, format!("ca_pem: {problem}"));
    if pem.len() > LONGEST {
        let problem = format!("is {} bytes long, the limit is {LONGEST}", pem.len());
        return Err(invalid(&problem));
    }
    let mut first = None;
    for certificate in certificate::certificates(pem.as_bytes()).map_err(|it| invalid(&it))? {
        let read = Certificate::read(&certificate)
            .ok_or_else(|| invalid("a certificate cannot be read"))?;
        if !read.is_authority {
            let problem = format!(
                "{:?} is not the certificate of an authority: {}",
                read.common_name,
                not_authority(&certificate)
            );
            return Err(invalid(&problem));
        }
        first.get_or_insert(read);
    }
    policy::only_signed_by(pem.as_bytes()).map_err(|problem| invalid(&problem))?;
    first.ok_or_else(|| invalid("holds no certificate in PEM"))
}
