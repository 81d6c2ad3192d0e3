//! Requests that wait, and how their waiting ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Local};
use serde_json::{Map, Value, json};
use tokio::sync::{oneshot, watch};

use super::rules::RuleAction;
use crate::agent::capture::{CaptureRecord, CapturedMessage};
use crate::logging::ignore;

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

    fn defaults() -> Value {
        json!({"enabled": true, "max_wait": DEFAULT_TIMEOUT_MS})
    }

    fn read(fields: &Map<String, Value>) -> Result<Self, Vec<String>> {
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
    /// Its head and, where all of it came, its body.
    pub request: CapturedMessage,
    decision: Mutex<Option<oneshot::Sender<HoldDecision>>>,
}

impl WaitingRequest {
    /// Ends its wait; false where that has ended already.
    pub fn decide(&self, decision: HoldDecision) -> bool {
        let sender = self.decision.lock().unwrap_or_else(PoisonError::into_inner).take();
        sender.is_some_and(|sender| sender.send(decision).is_ok())
    }
}

/// The requests that wait, oldest first.
#[derive(Debug)]
pub struct HeldRequests {
    list: Mutex<Vec<Arc<WaitingRequest>>>,
    changes: watch::Sender<u64>,
}

/// The place of a request among those that wait; dropping it gives the place up.
#[derive(Debug)]
pub struct HoldTicket {
    held: Arc<WaitingRequest>,
    all: Arc<HeldRequests>,
    decision: oneshot::Receiver<HoldDecision>,
}

impl HeldRequests {
    pub(super) fn new(changes: watch::Sender<u64>) -> Self {
        Self { list: Mutex::default(), changes }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<WaitingRequest>> {
        self.lock().clone()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// The one with this record.
    pub fn find(&self, id: &str) -> Option<Arc<WaitingRequest>> {
        self.lock().iter().find(|held| held.record.id == id).cloned()
    }

    pub(super) fn has_room(&self) -> bool {
        self.count() < MAX_HELD_REQUESTS
    }

    /// Lets those go that are meant.
    pub fn let_go(&self, is_meant: impl Fn(&WaitingRequest) -> bool) {
        self.all().iter().filter(|held| is_meant(held)).for_each(|held| {
            held.decide(HoldDecision::Release);
        });
    }

    /// Has a request wait.
    pub fn add(
        self: &Arc<Self>,
        record: Arc<CaptureRecord>,
        hold_id: String,
        time: HoldTime,
        request: CapturedMessage,
    ) -> HoldTicket {
        let (sender, decision) = oneshot::channel();
        let decision_slot = Mutex::new(Some(sender));
        let until = Local::now() + time.0;
        let held = WaitingRequest { record, hold_id, until, request, decision: decision_slot };
        let held = Arc::new(held);
        self.lock().push(held.clone());
        self.note_change();
        HoldTicket { held, all: self.clone(), decision }
    }

    fn note_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<WaitingRequest>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HoldTicket {
    /// Waits until somebody decides.
    pub async fn decided(&mut self) -> HoldDecision {
        // The sender lives in what this holds.
        (&mut self.decision).await.unwrap_or(HoldDecision::Release)
    }

    /// Ends the wait without anybody; what somebody decided just before counts.
    pub fn give_up(mut self) -> HoldDecision {
        ignore(self.held.decide(HoldDecision::Release), "somebody may have decided just now");
        self.decision.try_recv().unwrap_or(HoldDecision::Release)
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, &self.held));
        self.all.note_change();
    }
}
