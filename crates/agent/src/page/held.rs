//! Requests that wait for somebody to decide.

use std::sync::Arc;

use bytes::Bytes;
use chrono::SecondsFormat;
use serde::Serialize;

use ginnel_api::mask::CallSide;

use super::view::{MessageView, RequestSummary, call_mask};
use crate::edits::RequestEdits;
use crate::inner::AgentInner;
use crate::intercept::WaitingRequest;
use crate::web::{WebRejection, decide_held, decision_from_edits, find_held};

/// A request that waits.
#[derive(Debug, Serialize)]
pub(super) struct HeldView {
    #[serde(flatten)]
    summary: RequestSummary,
    /// When it is let go, RFC 3339 with milliseconds.
    until: String,
    /// Whether it can be changed: all of its body is there.
    editable: bool,
    request: MessageView,
}

impl HeldView {
    fn from_waiting(held: &WaitingRequest, reveal: bool) -> Self {
        let mut summary = RequestSummary::from_record(&held.record);
        if reveal {
            summary.target = held.request.start_line()[1].to_string();
        }
        Self {
            summary,
            until: held.until.to_rfc3339_opts(SecondsFormat::Millis, false),
            editable: held.request.is_whole(),
            request: MessageView::from_message(
                &held.request,
                &call_mask(&held.request),
                CallSide::Request,
                reveal,
            ),
        }
    }
}

/// All that wait, oldest first.
pub(super) fn list_held(shared: &AgentInner, reveal: bool) -> Vec<HeldView> {
    shared
        .interceptors
        .held()
        .all()
        .iter()
        .map(|held| HeldView::from_waiting(held, reveal))
        .collect()
}

/// Lets a request go, with what is to be different; masked values stay as they were.
pub(super) fn release_held(
    shared: &Arc<AgentInner>,
    id: &str,
    edits: &Bytes,
) -> Result<(), WebRejection> {
    let edits: RequestEdits = serde_json::from_slice(edits)
        .map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    let held = find_held(shared, id)?;
    decide_held(&held, decision_from_edits(&held, edits)?)
}
