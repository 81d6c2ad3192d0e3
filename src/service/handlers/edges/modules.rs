//! What the modules of edges and routes may hold.

use super::{backends, certificate_authorities};
use crate::api::id::{self, prefix};
use crate::api::remote::Ref;
use crate::api::remote::edges::modules::{
    BackendModule, BackendModuleChange, CircuitBreaker, Compression, IpRestriction,
    IpRestrictionChange, MutualTls, MutualTlsChange, RequestHeaders, ResponseHeaders,
    TlsTermination, TlsTerminationChange, WebhookVerification, WebsocketTcpConverter,
};
use crate::service::address::Base;
use crate::service::check::{header, header_name};
use crate::service::context::wrong_prefix;
use crate::service::store::Transaction;
use crate::service::{Refusal, code};

/// How many IP policies a restriction may name.
const MOST_POLICIES: usize = 100;
/// How many certificate authorities may vouch for the visitors of an edge.
const MOST_AUTHORITIES: usize = 100;
/// The longest time of a circuit breaker, in seconds.
const LONGEST: i64 = 24 * 60 * 60;

pub(super) fn backend(given: BackendModuleChange) -> Result<BackendModule, Refusal> {
    let Some(id) = given.backend_id else {
        return Err(Refusal::new(code::INVALID_VALUE, "backend_id: is required"));
    };
    backends::check_prefix("backend_id", &id)?;
    let backend = Some(Ref { id, ..Ref::default() });
    Ok(BackendModule { enabled: given.enabled.or(Some(true)), backend })
}

pub(super) fn ip_restriction(given: IpRestrictionChange) -> Result<IpRestriction, Refusal> {
    let ids = given.ip_policy_ids.unwrap_or_default();
    if ids.is_empty() {
        let message = "ip_policy_ids: must name at least one IP policy";
        return Err(Refusal::new(code::RESTRICTION_EMPTY, message));
    }
    if ids.len() > MOST_POLICIES {
        let message =
            format!("ip_policy_ids: has {} entries, the limit is {MOST_POLICIES}", ids.len());
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    for (index, id) in ids.iter().enumerate() {
        if !id::has_prefix(id, prefix::IP_POLICY) {
            return Err(wrong_prefix(&format!("ip_policy_ids[{index}]"), id, prefix::IP_POLICY));
        }
    }
    let policies = ids.into_iter().map(|id| Ref { id, ..Ref::default() }).collect();
    Ok(IpRestriction { enabled: given.enabled.or(Some(true)), ip_policies: Some(policies) })
}

pub(super) fn mutual_tls(given: MutualTlsChange) -> Result<MutualTls, Refusal> {
    let ids = given.certificate_authority_ids.unwrap_or_default();
    if !(1..=MOST_AUTHORITIES).contains(&ids.len()) {
        let message = format!(
            "certificate_authority_ids: has {} entries, 1 to {MOST_AUTHORITIES} are possible",
            ids.len()
        );
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    certificate_authorities::check_prefixes(&ids)?;
    let authorities = ids.into_iter().map(|id| Ref { id, ..Ref::default() }).collect();
    let enabled = given.enabled.or(Some(true));
    Ok(MutualTls { enabled, certificate_authorities: Some(authorities) })
}

pub(super) fn tls_termination(given: TlsTerminationChange) -> Result<TlsTermination, Refusal> {
    if let Some(version) = given.min_version.as_deref().filter(|it| !matches!(*it, "1.2" | "1.3")) {
        let message = format!("min_version: {version:?} is neither 1.2 nor 1.3");
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(TlsTermination {
        enabled: given.enabled.or(Some(true)),
        terminate_at: Some("edge".to_owned()),
        min_version: given.min_version,
    })
}

pub(super) fn circuit_breaker(given: CircuitBreaker) -> Result<CircuitBreaker, Refusal> {
    let whole = |name: &str, given: Option<i64>, default: i64, most: i64| match given {
        Some(number) if !(1..=most).contains(&number) => {
            let message = format!("{name}: {number} is not from 1 to {most}");
            Err(Refusal::new(code::INVALID_VALUE, message))
        }
        given => Ok(Some(given.unwrap_or(default))),
    };
    let share = given.error_threshold_percentage.unwrap_or(0.5);
    if !(0.0..=1.0).contains(&share) {
        let message = format!("error_threshold_percentage: {share} is not from 0 to 1");
        return Err(Refusal::new(code::INVALID_VALUE, message));
    }
    Ok(CircuitBreaker {
        enabled: given.enabled.or(Some(true)),
        tripped_duration: whole("tripped_duration", given.tripped_duration, 10, LONGEST)?,
        rolling_window: whole("rolling_window", given.rolling_window, 10, LONGEST)?,
        num_buckets: whole("num_buckets", given.num_buckets, 10, 128)?,
        volume_threshold: whole("volume_threshold", given.volume_threshold, 20, i64::MAX)?,
        error_threshold_percentage: Some(share),
    })
}

pub(super) fn compression(given: Compression) -> Result<Compression, Refusal> {
    Ok(Compression { enabled: given.enabled.or(Some(true)) })
}

pub(super) fn request_headers(given: RequestHeaders) -> Result<RequestHeaders, Refusal> {
    check_headers(given.add.iter().flatten(), given.remove.iter().flatten())?;
    Ok(RequestHeaders { enabled: given.enabled.or(Some(true)), ..given })
}

pub(super) fn response_headers(given: ResponseHeaders) -> Result<ResponseHeaders, Refusal> {
    check_headers(given.add.iter().flatten(), given.remove.iter().flatten())?;
    Ok(ResponseHeaders { enabled: given.enabled.or(Some(true)), ..given })
}

pub(super) fn webhook_verification(
    given: WebhookVerification,
) -> Result<WebhookVerification, Refusal> {
    let empty =
        |name: &str| Refusal::new(code::INVALID_VALUE, format!("{name}: must not be empty"));
    if given.provider.as_deref().is_none_or(|provider| provider.trim().is_empty()) {
        return Err(empty("provider"));
    }
    if given.secret.as_ref().is_none_or(|secret| secret.0.is_empty()) {
        return Err(empty("secret"));
    }
    Ok(WebhookVerification { enabled: given.enabled.or(Some(true)), ..given })
}

pub(super) fn websocket_tcp_converter(
    given: WebsocketTcpConverter,
) -> Result<WebsocketTcpConverter, Refusal> {
    Ok(WebsocketTcpConverter { enabled: given.enabled.or(Some(true)) })
}

fn check_headers<'a>(
    add: impl Iterator<Item = (&'a String, &'a String)>,
    mut remove: impl Iterator<Item = &'a String>,
) -> Result<(), Refusal> {
    for (name, value) in add {
        header("add", name, value)?;
    }
    remove.try_for_each(|name| header_name("remove", name))
}

/// Refuses modules that refer to what does not exist.
pub(super) fn check_references(
    change: &Transaction<'_>,
    backend: Option<&BackendModule>,
    restriction: Option<&IpRestriction>,
    named_in_policy: &[String],
) -> Result<(), Refusal> {
    if let Some(backend) = backend.and_then(|module| module.backend.as_ref()) {
        backends::check_exists(change, "backend_id", &backend.id)?;
    }
    for policy in restriction.and_then(|module| module.ip_policies.as_ref()).into_iter().flatten() {
        if !change.exists(&policy.id)? {
            let message = format!("ip_policy_ids: there is no IP policy {:?}", policy.id);
            return Err(Refusal::new(code::RESTRICTION_POLICY_UNKNOWN, message));
        }
    }
    for id in named_in_policy {
        if !change.exists(id)? {
            let message = format!("policy: there is no IP policy {id:?}");
            return Err(Refusal::new(code::POLICY_IP_POLICY, message));
        }
    }
    Ok(())
}

/// Fills in the addresses of what the modules refer to.
pub(super) fn locate(
    base: &Base,
    backend: Option<&mut BackendModule>,
    restriction: Option<&mut IpRestriction>,
) {
    if let Some(backend) = backend.and_then(|module| module.backend.as_mut()) {
        backend.uri = base.of(&backend.id);
    }
    let policies = restriction.and_then(|module| module.ip_policies.as_mut());
    for policy in policies.into_iter().flatten() {
        policy.uri = base.of(&policy.id);
    }
}
