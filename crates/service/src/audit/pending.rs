//! Events that wait to be written together, in bounds.
//!
//! Refused calls cost their sender nothing, and must not fill the disk: for those with a valid key there
//! is an event for each while they come slower than [`CALLER_RATE`], for those without one while they
//! come slower than [`ANONYMOUS_RATE`]. The event after a gap says how many are missing.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ginnel_api::remote::audit_events::AuditEvent;

use super::AuditedCall;

/// How often what waits is written.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// How many refused calls of valid keys are recorded at once, and how many a second in the long run.
const CALLER_RATE: Rate = Rate { burst: 200.0, per_second: 10.0 };
/// The same for calls without a valid key: one a minute.
const ANONYMOUS_RATE: Rate = Rate { burst: 20.0, per_second: 1.0 / 60.0 };

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: f64,
    per_second: f64,
}

/// Events that wait to be written.
pub(super) struct Pending(Mutex<PendingEvents>);

struct PendingEvents {
    events: Vec<(AuditEvent, SystemTime)>,
    callers: Allowance,
    anonymous: Allowance,
}

/// How many more events may be recorded now, and how many were not since the last one.
struct Allowance {
    rate: Rate,
    left: f64,
    seen: Instant,
    omitted: i64,
}

impl Default for Pending {
    fn default() -> Self {
        let (callers, anonymous) =
            (Allowance::from_rate(CALLER_RATE), Allowance::from_rate(ANONYMOUS_RATE));
        Self(Mutex::new(PendingEvents { events: Vec::new(), callers, anonymous }))
    }
}

impl Pending {
    /// Keeps an event until it is written, if there is room for it.
    pub(super) fn push(&self, mut event: AuditEvent, at: SystemTime) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let allowance = match AuditedCall::is_anonymous(&event) {
            true => &mut pending.anonymous,
            false => &mut pending.callers,
        };
        if let Some(omitted) = allowance.try_take(Instant::now()) {
            event.omitted = Some(omitted).filter(|omitted| *omitted > 0);
            pending.events.push((event, at));
        }
    }

    pub(super) fn take_events(&self) -> Vec<(AuditEvent, SystemTime)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).events)
    }
}

impl Allowance {
    fn from_rate(rate: Rate) -> Self {
        Self { rate, left: rate.burst, seen: Instant::now(), omitted: 0 }
    }

    /// How many were omitted before one that may be recorded; none when it may not.
    fn try_take(&mut self, now: Instant) -> Option<i64> {
        let passed = now.saturating_duration_since(self.seen).as_secs_f64();
        self.left = (self.left + passed * self.rate.per_second).min(self.rate.burst);
        self.seen = now;
        if self.left < 1.0 {
            self.omitted += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_recorded_and_the_rest_is_counted() {
        let mut allowance = Allowance::from_rate(Rate { burst: 2.0, per_second: 1.0 });
        let began = allowance.seen;

        let taken: Vec<_> = (0..5).map(|_| allowance.try_take(began)).collect();
        let later = allowance.try_take(began + Duration::from_secs(1));

        assert_eq!(taken, [Some(0), Some(0), None, None, None]);
        assert_eq!(later, Some(3));
        assert_eq!(allowance.try_take(began + Duration::from_secs(2)), Some(0));
    }
}
