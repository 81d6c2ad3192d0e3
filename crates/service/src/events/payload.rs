//! Events as they are delivered.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ginnel_api::Timestamp;

/// What has become of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

impl ChangeKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    /// As types of events say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    /// The operation that does it.
    pub fn operation(self) -> &'static str {
        match self {
            Self::Created => "create",
            Self::Updated => "update",
            Self::Deleted => "delete",
        }
    }
}

/// Who caused an event.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Principal {
    /// The user or bot user.
    pub id: String,
    /// The API key that was used.
    pub key_id: String,
}

/// An event as it is delivered.
#[derive(Debug, Serialize)]
pub(super) struct EventPayload<'a> {
    /// The same at every attempt.
    pub event_id: &'a str,
    pub event_type: &'a str,
    pub event_timestamp: &'a str,
    /// None where the service itself caused it, or a visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<&'a Principal>,
    pub object: Value,
}

/// What is to be known of an event to deliver it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EventHeader {
    pub event_id: String,
    pub event_type: String,
    pub event_timestamp: Timestamp,
}

/// An event on its way to one destination.
#[derive(Debug, Clone)]
pub(super) struct OutgoingEvent {
    pub header: EventHeader,
    /// The event as JSON.
    pub body: String,
}

impl OutgoingEvent {
    /// Reads what is to be known from the event itself.
    pub fn from_body(body: String) -> Result<Self, serde_json::Error> {
        Ok(Self { header: serde_json::from_str(&body)?, body })
    }
}
