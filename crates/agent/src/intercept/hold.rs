//! Requests that wait, and how their waiting ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Local};
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};

use ginnel_base::logging::ignore;

use super::rules::RuleAction;
use crate::capture::{CaptureRecord, CapturedMessage};

/// The longest time that a request waits.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// How long a request waits unless somebody says otherwise: less than services wait for a response.
const DEFAULT_TIMEOUT_MS: u64 = 45_000;
/// How many requests wait at a time; further ones are let go.
const MAX_HELD_REQUESTS: usize = 100;

/// How long a request that matches waits at most.
#[derive(Debug, Clone, Copy)]
pub struct HoldTime(pub Duration);

impl RuleAction for HoldTime {
    const KIND: &'static str = "hold";

    fn default_fields() -> Value {
        json!({"enabled": true, "max_wait": DEFAULT_TIMEOUT_MS})
    }

    fn from_fields(fields: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let max_wait = fields.get("max_wait").unwrap_or(&Value::Null);
        match max_wait.as_u64().filter(|time| (1..=MAX_TIMEOUT_MS).contains(time)) {
            Some(time) => Ok(Self(Duration::from_millis(time))),
            None => Err(vec![format!("max_wait: {max_wait} is not from 1 to {MAX_TIMEOUT_MS}")]),
        }
    }
}

/// How the wait of a request ends.
#[derive(Debug, PartialEq, Eq)]
pub enum HoldDecision {
    /// It goes as it is.
    Release,
    /// These bytes go in its place.
    Change(Vec<u8>),
    /// The visitor gets a response of the agent, with this status and text.
    Refuse(u16, String),
}

/// A request that waits.
#[derive(Debug)]
pub struct WaitingRequest {
    /// Its record.
    pub record: Arc<CaptureRecord>,
    /// The rule that it waits for.
    pub hold_id: String,
    /// When it is let go.
    pub until: DateTime<Local>,
    /// Its head, and what has come of its body.
    pub request: CapturedMessage,
    slot: Arc<DecisionSlot>,
}

/// Takes the decision on a request, once.
#[derive(Debug)]
struct DecisionSlot(Mutex<Option<oneshot::Sender<HoldDecision>>>);

impl DecisionSlot {
    fn send_decision(&self, decision: HoldDecision) -> bool {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that who comes second finds the decision of the first.
        sender.take().is_some_and(|sender| sender.send(decision).is_ok())
    }
}

impl WaitingRequest {
    /// Ends its wait; false where that has ended already.
    pub fn decide(&self, decision: HoldDecision) -> bool {
        self.slot.send_decision(decision)
    }
}

/// A place among the requests that wait. It is taken before the body of the request is read, and from then
/// on it may be let go; what waits there is shown as soon as it is known.
#[derive(Debug)]
struct HoldPlace {
    hold_id: String,
    slot: Arc<DecisionSlot>,
    waiting: Option<Arc<WaitingRequest>>,
}

/// The requests that wait, oldest first.
#[derive(Debug)]
pub struct HeldRequests {
    places: Mutex<Vec<HoldPlace>>,
    changes: watch::Sender<u64>,
}

/// The place of a request among those that wait; dropping it gives the place up.
#[derive(Debug)]
pub struct HoldTicket {
    all: Arc<HeldRequests>,
    hold_id: String,
    time: HoldTime,
    until: DateTime<Local>,
    slot: Arc<DecisionSlot>,
    decision: oneshot::Receiver<HoldDecision>,
}

impl HeldRequests {
    pub(super) fn new(changes: watch::Sender<u64>) -> Self {
        Self { places: Mutex::default(), changes }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<WaitingRequest>> {
        self.lock_places().iter().filter_map(|place| place.waiting.clone()).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock_places().iter().filter(|place| place.waiting.is_some()).count()
    }

    /// The one with this record.
    pub fn find(&self, id: &str) -> Option<Arc<WaitingRequest>> {
        self.all().into_iter().find(|held| held.record.id == id)
    }

    /// Lets the requests of a hold go, or all of them.
    pub fn release_matching(&self, hold_id: Option<&str>) {
        let places = self.lock_places();
        let meant = places.iter().filter(|place| hold_id.is_none_or(|id| place.hold_id == id));
        meant.for_each(|place| {
            ignore(place.slot.send_decision(HoldDecision::Release), "it may go already");
        });
    }

    /// Takes a place for a request that is to wait; none where all are taken.
    pub(super) fn take_place(
        self: &Arc<Self>,
        hold_id: &str,
        time: HoldTime,
    ) -> Option<HoldTicket> {
        let mut places = self.lock_places();
        if places.len() >= MAX_HELD_REQUESTS {
            return None;
        }
        let (sender, decision) = oneshot::channel();
        let slot = Arc::new(DecisionSlot(Mutex::new(Some(sender))));
        let hold_id = hold_id.to_owned();
        places.push(HoldPlace { hold_id: hold_id.clone(), slot: slot.clone(), waiting: None });
        let until = Local::now() + time.0;
        Some(HoldTicket { all: self.clone(), hold_id, time, until, slot, decision })
    }

    fn notify_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock_places(&self) -> MutexGuard<'_, Vec<HoldPlace>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HoldTicket {
    /// The rule that the request waits for.
    pub fn hold_id(&self) -> &str {
        &self.hold_id
    }

    /// How long it waits at most, since the place was taken.
    pub fn max_wait(&self) -> Duration {
        self.time.0
    }

    /// Shows the request, so that somebody can decide on it.
    pub fn publish_request(&self, record: Arc<CaptureRecord>, request: CapturedMessage) {
        let (hold_id, until, slot) = (self.hold_id.clone(), self.until, self.slot.clone());
        let held = Arc::new(WaitingRequest { record, hold_id, until, request, slot });
        let mut places = self.all.lock_places();
        let own = places.iter_mut().filter(|place| Arc::ptr_eq(&place.slot, &self.slot));
        own.for_each(|place| place.waiting = Some(held.clone()));
        drop(places);
        self.all.notify_change();
    }

    /// Waits until somebody decides; to be asked no more after that.
    pub async fn wait_for_decision(&mut self) -> HoldDecision {
        // The sender lives in the slot.
        (&mut self.decision).await.unwrap_or(HoldDecision::Release)
    }

    /// Ends the wait without anybody; what somebody decided just before counts.
    pub fn abandon_wait(&mut self) -> HoldDecision {
        ignore(
            self.slot.send_decision(HoldDecision::Release),
            "somebody may have decided just now",
        );
        self.decision.try_recv().unwrap_or(HoldDecision::Release)
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        self.all.lock_places().retain(|place| !Arc::ptr_eq(&place.slot, &self.slot));
        self.all.notify_change();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TIME: HoldTime = HoldTime(Duration::from_secs(60));

    fn held() -> Arc<HeldRequests> {
        Arc::new(HeldRequests::new(watch::Sender::new(0)))
    }

    #[test]
    fn a_place_is_taken_before_its_request_is_shown() {
        let all = held();

        let tickets: Vec<_> = (0..100).map(|_| all.take_place("h", TIME).unwrap()).collect();

        assert!(all.take_place("h", TIME).is_none());
        assert_eq!(all.count(), 0);
        drop(tickets);
        assert!(all.take_place("h", TIME).is_some());
    }

    #[tokio::test]
    async fn a_request_that_is_not_shown_yet_is_let_go() {
        let all = held();
        let mut meant = all.take_place("h", TIME).unwrap();
        let other = all.take_place("other", TIME).unwrap();

        all.release_matching(Some("h"));

        assert_eq!(meant.wait_for_decision().await, HoldDecision::Release);
        assert!(other.slot.send_decision(HoldDecision::Change(Vec::new())));
    }

    #[test]
    fn the_decision_of_whoever_was_first_counts() {
        let refusal = || HoldDecision::Refuse(418, String::new());
        for _ in 0..200 {
            let all = held();
            let mut ticket = all.take_place("h", TIME).unwrap();
            let slot = ticket.slot.clone();
            let deciding = std::thread::spawn(move || slot.send_decision(refusal()));

            let decision = ticket.abandon_wait();

            assert_eq!(decision == refusal(), deciding.join().unwrap());
        }
    }
}
