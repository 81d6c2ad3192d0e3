//! Events of traffic: from the node that saw it to the destinations, with a queue for each that is bounded.
//!
//! Nothing of it is stored. What does not fit, and what fails three times, is dropped and counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::sleep;

use ginnel_api::Timestamp;
use ginnel_api::id::prefix;
use ginnel_gateway::{Event, EventDelivery};
use ginnel_net::{ShutdownPhase, ShutdownSignal};

use super::backoff;
use super::delivery::DeliveryTarget;
use super::dispatcher::DispatchState;
use super::metrics::GiveUpReason;
use super::payload::{EventHeader, EventPayload, OutgoingEvent};
use super::types::{HTTP_REQUEST_COMPLETE, TCP_CONNECTION_CLOSED};

/// How many events may wait for one destination.
pub(super) const MAX_QUEUED: usize = 1024;
/// How often an event is sent.
const MAX_ATTEMPTS: u32 = 3;
/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause that a receiver may ask for: others are dropped meanwhile.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The queues of those who want a type of events.
pub(super) type TrafficQueues = HashMap<&'static str, Vec<mpsc::Sender<OutgoingEvent>>>;

/// Hands what the gateway tells to the queues.
pub(super) async fn distribute_events(
    state: Arc<DispatchState>,
    queues: Arc<ArcSwap<TrafficQueues>>,
    mut signal: ShutdownSignal,
) {
    let mut events = state.sender.gateway.subscribe_local_events();
    loop {
        let next = signal.run_until(ShutdownPhase::Graceful, events.next()).await;
        match next.flatten() {
            None => return,
            Some(EventDelivery::Missed(missed)) => {
                state.metrics.record_given_up(GiveUpReason::Traffic, missed);
            }
            // An event of its delivery would be delivered as well, without end.
            Some(EventDelivery::Event(event)) if event.delivers_event => {}
            Some(EventDelivery::Event(event)) => enqueue_event(&state, &queues.load(), &event),
        }
    }
}

fn enqueue_event(state: &DispatchState, queues: &TrafficQueues, event: &Event) {
    let event_type = type_of(event);
    let Some(queues) = queues.get(event_type) else { return };
    let outgoing = match to_outgoing(state, event_type, event) {
        Ok(outgoing) => outgoing,
        Err(err) => {
            tracing::error!(err, "an event of traffic cannot be written");
            return;
        }
    };
    for queue in queues {
        if let Err(TrySendError::Full(_)) = queue.try_send(outgoing.clone()) {
            state.metrics.record_given_up(GiveUpReason::Traffic, 1);
        }
    }
}

/// The type of an event: requests have a method.
fn type_of(event: &Event) -> &'static str {
    let is_request = event.method.is_some() || matches!(event.proto.as_ref(), "http" | "https");
    if is_request { HTTP_REQUEST_COMPLETE } else { TCP_CONNECTION_CLOSED }
}

fn to_outgoing(
    state: &DispatchState,
    event_type: &str,
    event: &Event,
) -> Result<OutgoingEvent, String> {
    let event_id = state.ids.next(prefix::EVENT).map_err(|error| error.to_string())?;
    // What rules say stays in the service.
    let event_object = Event { expressions: Vec::new(), ..event.masked() };
    let object = serde_json::to_value(event_object).map_err(|error| error.to_string())?;
    let payload = EventPayload {
        event_id: &event_id,
        event_type,
        event_timestamp: &event.time,
        principal: None,
        object,
    };
    let body = serde_json::to_string(&payload).map_err(|error| error.to_string())?;
    let header = EventHeader {
        event_id,
        event_type: event_type.to_owned(),
        event_timestamp: Timestamp(event.time.clone()),
    };
    Ok(OutgoingEvent { header, body })
}

/// Sends what comes out of a queue.
pub(super) async fn send_all(
    state: Arc<DispatchState>,
    target: DeliveryTarget,
    mut queue: mpsc::Receiver<OutgoingEvent>,
    mut signal: ShutdownSignal,
) {
    let mut events = Vec::new();
    loop {
        events.clear();
        let received = queue.recv_many(&mut events, target.max_batch_events());
        match signal.run_until(ShutdownPhase::Graceful, received).await {
            None | Some(0) => return,
            Some(_) => {}
        }
        let sending = send_with_retries(&state, &target, &events);
        if signal.run_until(ShutdownPhase::Graceful, sending).await.is_none() {
            return;
        }
    }
}

async fn send_with_retries(
    state: &DispatchState,
    target: &DeliveryTarget,
    events: &[OutgoingEvent],
) {
    let mut failures = 0;
    loop {
        let err = match state.sender.send_events(target, events, state.secret_second()).await {
            Ok(sent) => return state.metrics.record_sent(target.kind(), &sent),
            Err(err) => err,
        };
        state.metrics.record_failed_attempt(target.kind());
        failures += 1;
        let most = err.max_attempts().unwrap_or(MAX_ATTEMPTS).min(MAX_ATTEMPTS);
        if failures >= most {
            let dropped = events.len();
            tracing::debug!(%err, dropped, "events of traffic are dropped");
            state.metrics.record_given_up(GiveUpReason::Traffic, dropped as u64);
            return;
        }
        let asked = err.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
        sleep(backoff::random_pause(FIRST_PAUSE, failures).max(asked)).await;
    }
}
