//! Audit events: changes with their author and time.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// One call of the management API that changed something, or was to.
    pub struct AuditEvent {
        /// Unique identifier, `aev_` and 27 characters.
        pub id: String,
        /// The address of this event.
        pub uri: String,
        /// When the call came to its end.
        pub created_at: Option<Timestamp>,
        /// The operation, such as `ip_policies.create`.
        pub operation: Option<String>,
        /// The name of the request, as in the header `X-Request-Id` of its response.
        pub operation_id: Option<String>,
        /// The API key that was used; none where the caller had none, or a command was run.
        pub key_id: Option<String>,
        /// The user or bot user that owns the key.
        pub owner_id: Option<String>,
        /// True when the caller is an admin.
        pub admin: Option<bool>,
        /// The address that the call came from.
        pub address: Option<String>,
        /// What the call named and what it changed, at most 100 identifiers.
        pub resource_ids: Option<Vec<String>>,
        /// `success`, `refused` (4xx) or `failed` (5xx).
        pub outcome: Option<String>,
        /// The status of the response.
        pub status_code: Option<i64>,
        /// The code of the error in the response.
        pub error_code: Option<String>,
        /// How many refused calls before this one have no event, because too many came at once.
        pub omitted: Option<i64>,
    }
}

resource! {
    /// Audit events: changes with their author and time; for admins.
    "audit_events" {
        /// List the events, newest first.
        GET "/audit_events" List([
            before_id: String,
            limit: i64,
            /// Only events at this time or later.
            created_after: Timestamp,
            /// Only events before this time.
            created_before: Timestamp,
            /// Only those of this operation, such as `ip_policies.create`.
            operation: String,
            /// Only those of this API key, user or bot user.
            principal: String,
            /// Only those that named or changed the resource with this identifier.
            resource_id: String,
        ]) -> [audit_events: AuditEvent];
        /// Fetch one event.
        GET "/audit_events/{id}" Get(id: String) -> AuditEvent;
    }
}
