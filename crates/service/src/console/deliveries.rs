//! What waits for a destination of events, and how delivering to it failed last.

use serde::Serialize;
use serde_json::{Map, Value};

use ginnel_api::remote::event_destinations::EventDestination;
use ginnel_api::{Field, Kind, Timestamp};
use ginnel_store::View;

use crate::context::{Context, find_or_refuse};
use crate::events::FailedAttempt;
use crate::{Refusal, Result};

/// Which destination.
pub(super) const PARAMETERS: &[Field] = &[Field {
    name: "id",
    doc: " The identifier of the event destination.\n",
    kind: Kind::Text { max: Some(256) },
    required: true,
    is_public: false,
}];

/// What waits for a destination.
#[derive(Debug, Serialize)]
pub(super) struct WaitingDeliveries {
    /// How many events.
    count: u64,
    /// How long they are together.
    bytes: u64,
    /// When the oldest of them happened.
    oldest_at: Option<Timestamp>,
    /// What this node knows of failures: where another one delivers, nothing.
    last_failure: Option<FailedAttempt>,
}

impl WaitingDeliveries {
    /// Reads it for an admin, as destinations are.
    pub async fn read_waiting(service: &Context, arguments: &Map<String, Value>) -> Result<Self> {
        if !service.caller.admin {
            return Err(Refusal::only_for_admins("only an admin may see what is delivered"));
        }
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let last_failure = service.shared.event_metrics.last_failure(&id);
        let read = move |view: &View<'_>| -> Result<_> {
            find_or_refuse::<EventDestination>(view, &id)?;
            Ok((view.waiting_totals(&id)?, view.waiting_events(&id, 1)?))
        };
        let (totals, oldest) = service.read(read).await?;
        let at = oldest.first().and_then(|event| u64::try_from(event.at).ok());
        Ok(Self {
            count: totals.count,
            bytes: totals.bytes,
            oldest_at: at.map(Timestamp::at_unix),
            last_failure,
        })
    }
}
