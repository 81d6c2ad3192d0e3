//! Sending a captured request again, as it was or changed.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::web::WebRejection;
use crate::edits::{EditError, RequestEdits};
use crate::inner::AgentInner;
use crate::replay::{ReplayError, ReplayPlan};

/// What is to be different, and where it goes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EditedReplay {
    tunnel: Option<String>,
    method: Option<String>,
    target: Option<String>,
    headers: Option<Vec<(String, String)>>,
    body: Option<String>,
    body_text: Option<String>,
    trailers: Option<Vec<(String, String)>>,
    addr: Option<String>,
    times: Option<i64>,
    interval: Option<i64>,
}

/// Sends a request again; answers with the identifier of the new record.
pub(super) async fn replay_edited(
    shared: &Arc<AgentInner>,
    id: &str,
    edited: &Bytes,
) -> Result<Value, WebRejection> {
    let edited: EditedReplay = serde_json::from_slice(edited)
        .map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    let EditedReplay { tunnel, method, target, headers, body, body_text, trailers, .. } = edited;
    let plan = ReplayPlan::new(edited.addr.as_deref(), edited.times, edited.interval);
    let plan = plan.map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    let record = shared
        .captures
        .find(id)
        .ok_or_else(|| WebRejection::gone(ReplayError::NoRecord(id.to_owned()).to_string()))?;
    let original = record.lock_exchange().request.clone();
    let tunnel = tunnel.unwrap_or_else(|| record.tunnel_name.clone());
    let edits = RequestEdits { method, target, headers, body, body_text, trailers };
    let raw = edits.apply_to(&original, &record.source);
    let raw = raw.map_err(|error| match error {
        EditError::Truncated => {
            WebRejection::new(400, 105, "request cannot be replayed", error.to_string())
        }
        EditError::Invalid(problem) => WebRejection::invalid_body(problem),
    })?;
    let sent = shared.send_request(&tunnel, raw, Some(record.id.clone()), plan).await;
    let new = sent.map_err(|error| match error {
        ReplayError::Address(_) => WebRejection::invalid_body(error.to_string()),
        _ => WebRejection::gone(error.to_string()),
    })?;
    Ok(json!({"id": new}))
}
