//! What is counted of events.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use ginnel_api::Timestamp;
use ginnel_metrics::Families;
use ginnel_store::WaitingTotals;

use super::delivery::{DeliveryReport, TargetKind};

/// Why an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GiveUpReason {
    /// The receiver refused it too often.
    Refused,
    /// It was too old.
    Expired,
    /// Too many were waiting.
    Overflow,
    /// It was of traffic, which is not stored.
    Traffic,
    /// No subscription names its type and its destination any more.
    Unsubscribed,
    /// What is stored of it cannot be read.
    Unusable,
}

impl GiveUpReason {
    const ALL: [Self; 6] = [
        Self::Refused,
        Self::Expired,
        Self::Overflow,
        Self::Traffic,
        Self::Unsubscribed,
        Self::Unusable,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Overflow => "overflow",
            Self::Traffic => "traffic",
            Self::Unsubscribed => "unsubscribed",
            Self::Unusable => "unusable",
        }
    }
}

/// The last attempt to deliver to a destination that failed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FailedAttempt {
    pub at: Timestamp,
    /// How many have failed one after the other; 0 where one has succeeded since.
    pub attempts: u32,
    /// Why it failed.
    pub problem: String,
}

/// What is counted of events.
#[derive(Debug, Default)]
pub(crate) struct EventMetrics {
    delivered: [AtomicU64; TargetKind::ALL.len()],
    failed_attempts: [AtomicU64; TargetKind::ALL.len()],
    given_up: [AtomicU64; GiveUpReason::ALL.len()],
    /// How much waits, by the destination, as this node has seen it last.
    waiting: Mutex<BTreeMap<String, WaitingTotals>>,
    /// The last failures, by the destination.
    failures: Mutex<BTreeMap<String, FailedAttempt>>,
}

impl EventMetrics {
    /// Counts events that a receiver has taken, and those among them that it has dropped.
    pub(super) fn record_sent(&self, kind: TargetKind, report: &DeliveryReport) {
        self.delivered[kind as usize].fetch_add(report.delivered, Relaxed);
        self.record_given_up(GiveUpReason::Refused, report.rejected);
    }

    pub(super) fn record_failed_attempt(&self, kind: TargetKind) {
        self.failed_attempts[kind as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn record_given_up(&self, reason: GiveUpReason, count: u64) {
        self.given_up[reason as usize].fetch_add(count, Relaxed);
    }

    pub(super) fn set_waiting(&self, destination_id: &str, totals: WaitingTotals) {
        self.lock_waiting().insert(destination_id.to_owned(), totals);
    }

    pub(super) fn set_last_failure(&self, destination_id: &str, failure: FailedAttempt) {
        self.lock_failures().insert(destination_id.to_owned(), failure);
    }

    /// Notes that an attempt has succeeded.
    pub(super) fn clear_last_failure(&self, destination_id: &str) {
        if let Some(failure) = self.lock_failures().get_mut(destination_id) {
            failure.attempts = 0;
        }
    }

    /// The last attempt of this node that failed; none where there was none.
    pub(crate) fn last_failure(&self, destination_id: &str) -> Option<FailedAttempt> {
        self.lock_failures().get(destination_id).cloned()
    }

    /// Forgets a destination that is gone, or that another node delivers to.
    pub(super) fn forget_destination(&self, destination_id: &str) {
        self.lock_waiting().remove(destination_id);
        self.lock_failures().remove(destination_id);
    }

    fn lock_failures(&self) -> MutexGuard<'_, BTreeMap<String, FailedAttempt>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_waiting(&self) -> MutexGuard<'_, BTreeMap<String, WaitingTotals>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Events that were delivered, by the kind of their destination.";
        let mut family = families.counter("ginnel_events_delivered", help)?;
        for kind in TargetKind::ALL {
            let count = self.delivered[kind as usize].load(Relaxed);
            family.write_counter(&[("target", kind.name())], count)?;
        }
        let help = "Attempts to deliver events that failed, by the kind of their destination.";
        let mut family = families.counter("ginnel_event_attempts_failed", help)?;
        for kind in TargetKind::ALL {
            let count = self.failed_attempts[kind as usize].load(Relaxed);
            family.write_counter(&[("target", kind.name())], count)?;
        }
        let help = "Events that were given up and are lost, by the reason.";
        let mut family = families.counter("ginnel_events_given_up", help)?;
        for reason in GiveUpReason::ALL {
            let count = self.given_up[reason as usize].load(Relaxed);
            family.write_counter(&[("reason", reason.name())], count)?;
        }
        let help = "Events that wait for this node to deliver them.";
        let waiting: Vec<_> = self.lock_waiting().values().copied().collect();
        let count: u64 = waiting.iter().map(|totals| totals.count).sum();
        families.gauge("ginnel_events_waiting", help)?.write_gauge(&[], count as f64)?;
        let help = "Bytes of events that wait for this node to deliver them.";
        let bytes: u64 = waiting.iter().map(|totals| totals.bytes).sum();
        families.gauge("ginnel_events_waiting_bytes", help)?.write_gauge(&[], bytes as f64)
    }
}
