//! A call of the management API, as the audit trail will have it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use percent_encoding::percent_decode_str;

use ginnel_api::remote::audit_events::AuditEvent;
use ginnel_api::{Info, Verb, id};

use crate::Refusal;
use crate::accounts::Caller;

/// How many identifiers an event has at most; a policy may be deleted with thousands of rules.
const MAX_RESOURCE_IDS: usize = 100;

/// A call that changes something, or is to.
pub(crate) struct AuditedCall {
    info: &'static Info,
    operation_id: Option<String>,
    caller: Option<Arc<Caller>>,
    address: Option<IpAddr>,
    /// The identifiers in the path.
    named: Vec<String>,
    is_recorded: AtomicBool,
}

impl AuditedCall {
    /// What is known before the call is performed; none for a call that only reads.
    pub(crate) fn from_operation(
        info: &'static Info,
        path: &str,
        operation_id: Option<&str>,
        caller: Option<&Arc<Caller>>,
        address: Option<IpAddr>,
    ) -> Option<Self> {
        if info.method == Verb::GET {
            return None;
        }
        Some(Self {
            info,
            operation_id: operation_id.map(ToOwned::to_owned),
            caller: caller.cloned(),
            address,
            named: ids_in_path(info, path),
            is_recorded: AtomicBool::new(false),
        })
    }

    /// True for a call without a key that is valid.
    pub(super) fn is_anonymous(event: &AuditEvent) -> bool {
        event.key_id.is_none()
    }

    pub(super) fn set_recorded(&self) {
        self.is_recorded.store(true, Ordering::Release);
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Acquire)
    }

    /// The event of a call that succeeded and changed these resources.
    pub(super) fn success_event(&self, changed: &[String]) -> AuditEvent {
        let mut event = self.base_event();
        let ids = event.resource_ids.get_or_insert_default();
        for id in changed {
            if ids.len() < MAX_RESOURCE_IDS && !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        event.outcome = Some("success".to_owned());
        event.status_code = Some(self.info.success_status().into());
        event
    }

    /// The event of a call that was refused, or failed.
    pub(super) fn refusal_event(&self, refusal: &Refusal, code_prefix: &str) -> AuditEvent {
        let status = refusal.status();
        let outcome = if status < 500 { "refused" } else { "failed" };
        AuditEvent {
            outcome: Some(outcome.to_owned()),
            status_code: Some(status.into()),
            error_code: refusal.error_code(code_prefix),
            ..self.base_event()
        }
    }

    fn base_event(&self) -> AuditEvent {
        let caller = self.caller.as_ref();
        AuditEvent {
            operation: Some(format!("{}.{}", self.info.resource, self.info.name)),
            operation_id: self.operation_id.clone(),
            key_id: caller.map(|caller| caller.key_id.clone()),
            owner_id: caller.map(|caller| caller.owner_id.clone()),
            admin: caller.map(|caller| caller.admin),
            address: self.address.map(|address| address.to_string()),
            resource_ids: Some(self.named.clone()),
            ..AuditEvent::default()
        }
    }
}

/// The identifiers in a path, the resource itself first. What has not the form of one is left out: it
/// may be anything that somebody has pasted there.
fn ids_in_path(info: &Info, path: &str) -> Vec<String> {
    let segments = info.path.split('/').zip(path.split('/'));
    let values = segments.filter(|(template, _)| template.starts_with('{'));
    let decoded = values.filter_map(|(_, text)| percent_decode_str(text).decode_utf8().ok());
    let ids = decoded.filter(|text| id::is_id(text)).map(|text| text.into_owned());
    let mut ids: Vec<_> = ids.collect();
    ids.reverse();
    ids
}
