//! Reserved domains: names that belong to their owner, and the certificates that they show.

use std::sync::Arc;

use tokio::runtime::Handle;

use ginnel_api::id::has_prefix;
use ginnel_api::remote::Ref;
use ginnel_api::remote::reserved_domains::{
    CertificateManagementPolicy, CertificateManagementStatus, Create, Delete, DeleteCertificate,
    DeletePolicy, DomainRegion, Get, List, ProvisioningJob, ReservedDomain, Update,
};
use ginnel_api::remote::tls_certificates::TlsCertificate;
use ginnel_api::{Timestamp, mask};
use ginnel_base::address::HostPattern;
use ginnel_store::{Changes, StoreResult};

use crate::accounts::{self, Caller};
use crate::agents::OnlineTunnel;
use crate::certificates::{CERTIFICATE, ManagedName};
use crate::cluster::RemoteTunnel;
use crate::context::{ServiceState, wrong_prefix};
use crate::domains::{self, DOMAIN, DOMAINS, HOSTPORTS_OWNER};
use crate::handlers::prelude::*;
use crate::references::HOSTPORTS;

/// The authorities that a certificate may be asked for from; both are the directory of the service.
const AUTHORITIES: [&str; 2] = ["acme", "letsencrypt"];
/// The type of the keys that the service makes.
const KEY_TYPE: &str = "ecdsa";

impl StoredResource for ReservedDomain {
    fn locate(&mut self, base: &Base) {
        self.uri = base.of(&self.id);
        if let Some(certificate) = &mut self.certificate {
            certificate.uri = base.of(&certificate.id);
        }
    }

    /// An edge that lost its domain would lose its certificate, and its name to others.
    fn remove(change: &Transaction<'_>, id: &str, call: &RemovalContext) -> Result<()> {
        check_owner(&find_or_refuse(change, id)?, &call.caller)?;
        check_unused(change, id, &[DOMAIN], "reserved domain", code::DOMAIN_IN_USE)?;
        remove_or_refuse::<Self>(change, id)
    }

    fn complete(&mut self, view: &View<'_>, has_acme: bool) -> StoreResult<()> {
        let name = self.domain.as_deref().unwrap_or_default();
        if !has_acme || self.certificate.is_some() || name.starts_with('*') {
            self.certificate_management_policy = None;
            return Ok(());
        }
        let policy = CertificateManagementPolicy {
            authority: Some(AUTHORITIES[0].to_owned()),
            private_key_type: Some(KEY_TYPE.to_owned()),
        };
        let managed = ManagedName::find(view, name)?.unwrap_or_default();
        self.certificate_management_policy.get_or_insert(policy);
        self.certificate_management_status = Some(management_status(&managed));
        let certificate = managed.certificate_id;
        self.certificate = certificate.map(|id| Ref { id, uri: String::new() });
        Ok(())
    }
}

pub(super) fn handlers() -> Vec<Handler> {
    vec![
        on(create),
        list::<List>(),
        get::<Get>(),
        on(update),
        delete::<Delete>(),
        on(delete_certificate),
        on(delete_policy),
    ]
}

async fn create(service: Context, params: Create) -> OperationResult<Create> {
    let name = check_name(&params.domain)?;
    check_regions(params.resolves_to.as_deref())?;
    let shared = service.shared.clone();
    let certificate = CertificateChange::from_request(
        &service,
        params.certificate_id,
        params.certificate_management_policy,
    )?;
    let caller = service.caller.clone();
    let create = service.write_resource(move |change| {
        let owner_id = accounts::resolve_owner(change, &caller, params.owner_id)?;
        check_free(change, &name, &owner_id)?;
        check_online(&shared, &name, &owner_id)?;
        let mut domain = new_item!(change, params => ReservedDomain {
            domain: Some(name.clone()),
            region: Some(params.region.unwrap_or_default()),
            owner_id: Some(owner_id.clone()),
        });
        certificate.apply_to(change, &mut domain)?;
        change.claim_key(DOMAINS, &name, &domain.id)?;
        adopt_edges(change, &domain, &name, &owner_id)?;
        change.put_document(&domain)?;
        Ok(domain)
    });
    create.await
}

async fn update(service: Context, params: Update) -> OperationResult<Update> {
    check_regions(params.resolves_to.as_deref())?;
    let certificate = CertificateChange::from_request(
        &service,
        params.certificate_id,
        params.certificate_management_policy,
    )?;
    let caller = service.caller.clone();
    let update = service.write_resource(move |change| {
        let mut domain: ReservedDomain = find_or_refuse(change, &params.id)?;
        check_owner(&domain, &caller)?;
        domain.description = params.description.or(domain.description);
        domain.metadata = params.metadata.or(domain.metadata);
        domain.region = params.region.or(domain.region);
        certificate.apply_to(change, &mut domain)?;
        change.put_document(&domain)?;
        Ok(domain)
    });
    update.await
}

async fn delete_certificate(
    service: Context,
    params: DeleteCertificate,
) -> OperationResult<DeleteCertificate> {
    let caller = service.caller.clone();
    let delete = service.write(move |change| {
        let mut domain: ReservedDomain = find_or_refuse(change, &params.id)?;
        check_owner(&domain, &caller)?;
        CertificateChange::Remove.apply_to(change, &mut domain)?;
        Ok(change.put_document(&domain)?)
    });
    delete.await
}

async fn delete_policy(service: Context, params: DeletePolicy) -> OperationResult<DeletePolicy> {
    let (caller, has_acme) = (service.caller.clone(), service.shared.has_acme);
    let delete = service.write(move |change| {
        let mut domain: ReservedDomain = find_or_refuse(change, &params.id)?;
        check_owner(&domain, &caller)?;
        if has_acme && domain.certificate.is_none() {
            let message = "the service obtains a certificate for each of its domains; give the domain a \
                           certificate_id instead";
            return Err(invalid_policy(message));
        }
        domain.certificate_management_policy = None;
        Ok(change.put_document(&domain)?)
    });
    delete.await
}

fn check_regions(regions: Option<&[DomainRegion]>) -> Result<()> {
    if regions.is_none_or(<[_]>::is_empty) {
        return Ok(());
    }
    let message = "resolves_to must be empty: a service of one's own has no regions";
    Err(Refusal::new(code::INVALID_VALUE, message))
}

fn check_owner(domain: &ReservedDomain, caller: &Caller) -> Result<()> {
    if caller.admin || domain.owner_id.as_ref() == Some(&caller.owner_id) {
        return Ok(());
    }
    let message = "only its owner or an admin may change a reserved domain";
    Err(Refusal::new(code::DOMAIN_NEEDS_OWNER, message))
}

/// Returns a host name in its normal form. A leading `*.` is allowed, an address is not.
fn check_name(domain: &str) -> Result<String> {
    let name = HostPattern::parse(domain).map_err(|problem| {
        let shown = mask::url(domain);
        let message = format!("domain: {shown:?} is not a host name: it {problem}");
        Refusal::new(code::INVALID_VALUE, message)
    })?;
    Ok(name.to_string())
}

/// Refuses a name that is reserved, or that would divide or swallow the name of another owner.
fn check_free(change: &Transaction<'_>, name: &str, owner_id: &str) -> Result<()> {
    if let Some(above) = domains::reservation_of(change, name)? {
        let is_own = above.owner_id.as_deref() == Some(owner_id);
        let above = above.domain.unwrap_or_default();
        if above == name {
            let (code, whose) = match is_own {
                true => (code::DOMAIN_OWN_DUPLICATE, "its owner"),
                false => (code::DOMAIN_DUPLICATE, "another owner"),
            };
            let message = format!("domain: {name:?} is reserved by {whose} already");
            return Err(Refusal::new(code, message));
        }
        if !is_own {
            return Err(conflict_refusal(name, &above));
        }
    }
    match name.strip_prefix('*') {
        Some(suffix) => check_below(change, name, suffix, owner_id),
        None => Ok(()),
    }
}

fn check_below(view: &View<'_>, name: &str, suffix: &str, owner_id: &str) -> Result<()> {
    let is_foreign = |domain: &ReservedDomain| {
        let is_below = domain.domain.as_ref().is_some_and(|below| below.ends_with(suffix));
        is_below && domain.owner_id.as_deref() != Some(owner_id)
    };
    match view.all_documents::<ReservedDomain>()?.into_iter().find(is_foreign) {
        Some(below) => Err(conflict_refusal(name, below.domain.as_deref().unwrap_or_default())),
        None => Ok(()),
    }
}

fn conflict_refusal(name: &str, other: &str) -> Refusal {
    let message = format!("domain: {name:?} conflicts with {other:?} of another owner");
    Refusal::new(code::DOMAIN_CONFLICT, message)
}

/// Whether an agent of another owner has a name that belongs to a domain.
fn is_foreign(tunnel: &OnlineTunnel, domain: &str, owner_id: &str) -> bool {
    let belongs = |host: &str| is_in_domain(host, domain);
    tunnel.session.agent.owner_id != owner_id && tunnel.host().is_some_and(belongs)
}

fn is_in_domain(host: &str, domain: &str) -> bool {
    match domain.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix),
        None => host == domain,
    }
}

fn check_online(shared: &ServiceState, name: &str, owner_id: &str) -> Result<()> {
    let tunnels = shared.registry.tunnels();
    let here = tunnels.iter().find(|tunnel| is_foreign(tunnel, name, owner_id));
    let elsewhere = || {
        let is_foreign = |tunnel: &RemoteTunnel| {
            *tunnel.account_id != *owner_id
                && tunnel.host().is_some_and(|it| is_in_domain(it, name))
        };
        Some(shared.cluster.as_ref()?.directory.find_tunnel_where(is_foreign)?.id.to_string())
    };
    match here.map(|tunnel| tunnel.id.clone()).or_else(elsewhere) {
        None => Ok(()),
        Some(id) => {
            let message = format!("domain: {name:?} is in use by the tunnel {id}");
            Err(Refusal::new(code::DOMAIN_ONLINE, message))
        }
    }
}

/// Ends tunnels of this node whose host names others have reserved, from now on: what came online between the
/// look at the tunnels and the commit, wherever that was.
pub(crate) fn follow_reservations(state: &Arc<ServiceState>) {
    let (follower, runtime) = (Arc::downgrade(state), Handle::current());
    state.store.watch_changes(move |changes| {
        let Some(domains) = changes.filter_ids(|id| has_prefix(id, prefix::RESERVED_DOMAIN)) else {
            return;
        };
        let Some(state) = follower.upgrade() else { return };
        runtime.spawn(async move {
            let ended = end_tunnels_of_others(&state, domains).await;
            if let Err(err) = ended {
                tracing::warn!(%err, "cannot look up who has reserved the host names of tunnels");
            }
        });
    });
}

async fn end_tunnels_of_others(state: &ServiceState, changed: Changes) -> StoreResult<()> {
    let read = state.store.read(move |view| match changed {
        Changes::Of(ids) => view.find_documents::<ReservedDomain>(&ids),
        Changes::All => view.all_documents(),
    });
    for domain in read.await? {
        let (Some(name), Some(owner_id)) = (&domain.domain, &domain.owner_id) else { continue };
        let tunnels = state.registry.tunnels();
        for tunnel in tunnels.iter().filter(|it| is_foreign(it, name, owner_id)) {
            tracing::info!(tunnel = %tunnel.id, "a tunnel ends: its host name was reserved by another");
            if state.registry.drop_bind(&tunnel.bind_id).is_none() {
                tracing::debug!(tunnel = %tunnel.id, "the tunnel had ended already");
            }
        }
    }
    Ok(())
}

/// Notes which edges have the name already; refuses it when one of them is another owner's.
fn adopt_edges(
    change: &Transaction<'_>,
    domain: &ReservedDomain,
    name: &str,
    owner_id: &str,
) -> Result<()> {
    for edge in change.claimants_below(HOSTPORTS, &format!("{name}:"))? {
        if ![prefix::HTTPS_EDGE, prefix::TLS_EDGE, prefix::ENDPOINT]
            .iter()
            .any(|it| has_prefix(&edge, it))
        {
            continue;
        }
        let owners = change.references(&edge, HOSTPORTS_OWNER)?;
        if owners.iter().any(|owner| owner != owner_id) {
            let message = format!("domain: {name:?} is in use by {edge} of another owner");
            return Err(Refusal::new(code::DOMAIN_ONLINE, message));
        }
        let known = change.references(&edge, DOMAIN)?;
        let domains = known.iter().map(String::as_str).chain([domain.id.as_str()]);
        change.replace_references(&edge, DOMAIN, domains)?;
    }
    Ok(())
}

/// What a call wants of the certificate.
#[derive(Clone)]
enum CertificateChange {
    Keep,
    Remove,
    Show(String),
    Manage(CertificateManagementPolicy),
}

impl CertificateChange {
    fn from_request(
        service: &Context,
        certificate_id: Option<String>,
        policy: Option<CertificateManagementPolicy>,
    ) -> Result<Self> {
        match (certificate_id, policy) {
            (None, None) => Ok(Self::Keep),
            (None, Some(policy)) => check_policy(service, policy).map(Self::Manage),
            (Some(id), None) if id.is_empty() => Ok(Self::Remove),
            (Some(id), None) if has_prefix(&id, prefix::TLS_CERTIFICATE) => Ok(Self::Show(id)),
            (Some(id), None) => Err(wrong_prefix("certificate_id", &id, prefix::TLS_CERTIFICATE)),
            (Some(_), Some(_)) => {
                let message = "certificate_id and certificate_management_policy exclude each other";
                Err(Refusal::new(code::INVALID_VALUE, message))
            }
        }
    }

    fn apply_to(self, change: &Transaction<'_>, domain: &mut ReservedDomain) -> Result<()> {
        match self {
            Self::Keep => return Ok(()),
            Self::Remove => domain.certificate = None,
            Self::Show(id) => {
                check_covers(change, &id, domain.domain.as_deref().unwrap_or_default())?;
                domain.certificate = Some(Ref { id, uri: String::new() });
                domain.certificate_management_policy = None;
            }
            Self::Manage(policy) => {
                if domain.domain.as_ref().is_some_and(|name| name.starts_with('*')) {
                    return Err(invalid_policy("a wildcard needs a certificate of your own"));
                }
                domain.certificate = None;
                domain.certificate_management_policy = Some(policy);
            }
        }
        let certificate = domain.certificate.as_ref().map(|certificate| certificate.id.as_str());
        Ok(change.replace_references(&domain.id, CERTIFICATE, certificate)?)
    }
}

fn invalid_policy(problem: &str) -> Refusal {
    let message = format!("certificate_management_policy: {problem}");
    Refusal::new(code::INVALID_VALUE, message)
}

fn check_policy(
    service: &Context,
    policy: CertificateManagementPolicy,
) -> Result<CertificateManagementPolicy> {
    let authority = policy.authority.unwrap_or_else(|| AUTHORITIES[0].to_owned());
    let private_key_type = policy.private_key_type.unwrap_or_else(|| KEY_TYPE.to_owned());
    if !service.shared.has_acme {
        return Err(invalid_policy("the service was started without an ACME directory"));
    }
    if !AUTHORITIES.contains(&authority.as_str()) {
        return Err(invalid_policy(&format!("the authority {authority:?} is not known")));
    }
    if private_key_type != KEY_TYPE {
        return Err(invalid_policy(&format!("the private key type must be {KEY_TYPE}")));
    }
    Ok(CertificateManagementPolicy {
        authority: Some(authority),
        private_key_type: Some(private_key_type),
    })
}

/// Refuses a certificate that visitors of a domain would not accept.
fn check_covers(view: &View<'_>, id: &str, domain: &str) -> Result<()> {
    let invalid =
        |problem: String| Refusal::new(code::INVALID_VALUE, format!("certificate_id: {problem}"));
    let certificate: TlsCertificate =
        view.find_document(id)?.ok_or_else(|| invalid(format!("{id:?} does not exist")))?;
    let names = certificate.subject_alternative_names.and_then(|names| names.dns_names);
    let names = names.unwrap_or_default();
    let parent = domain.split_once('.').map_or(domain, |(_, parent)| parent);
    let covers = |name: &String| {
        let name = name.to_ascii_lowercase();
        name == domain || name.strip_prefix("*.") == Some(parent)
    };
    if names.iter().any(covers) {
        return Ok(());
    }
    Err(invalid(format!("the certificate is for {}, not for {domain:?}", names.join(", "))))
}

fn management_status(managed: &ManagedName) -> CertificateManagementStatus {
    let at = |seconds: Option<u64>| seconds.map(Timestamp::at_unix);
    let is_done = managed.certificate_id.is_some() && managed.failure.is_none();
    let job = ProvisioningJob {
        error_code: managed.failure.as_ref().map(|failure| failure.code.clone()),
        msg: managed.failure.as_ref().map(|failure| failure.message.clone()),
        started_at: at(managed.started_at),
        retries_at: at(managed.retries_at),
    };
    CertificateManagementStatus {
        renews_at: at(managed.renews_at),
        provisioning_job: (!is_done).then_some(job),
    }
}
