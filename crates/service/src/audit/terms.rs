//! What events are found by.

use ginnel_api::remote::audit_events::AuditEvent;

/// The term of events of an operation.
pub(crate) fn operation_term(operation: &str) -> String {
    format!("op:{operation}")
}

/// The term of events of an API key or its owner.
pub(crate) fn principal_term(id: &str) -> String {
    format!("by:{id}")
}

/// The term of events that named or changed a resource.
pub(crate) fn resource_term(id: &str) -> String {
    format!("on:{id}")
}

/// All terms of an event.
pub(super) fn event_terms(event: &AuditEvent) -> Vec<String> {
    let operation = event.operation.as_deref().map(operation_term);
    let principals = [&event.key_id, &event.owner_id].into_iter().flatten();
    let resources = event.resource_ids.iter().flatten();
    operation
        .into_iter()
        .chain(principals.map(|id| principal_term(id)))
        .chain(resources.map(|id| resource_term(id)))
        .collect()
}
