//! Giving a failing backend time to recover.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When requests are turned away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BreakerLimits {
    /// How long requests are turned away before one may try again.
    pub tripped: Duration,
    /// How far back failures count.
    pub window: Duration,
    /// Into how many buckets the window is divided.
    pub buckets: usize,
    /// How many requests a window needs before failures count.
    pub volume: u64,
    /// The share of failures, 0 to 1, that trips.
    pub share: f64,
}

/// Turns requests away while too many of them fail.
#[derive(Debug)]
pub struct Breaker {
    /// When requests are turned away.
    pub limits: BreakerLimits,
    state: Mutex<BreakerState>,
}

#[derive(Debug)]
struct BreakerState {
    phase: BreakerPhase,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum BreakerPhase {
    /// Everything passes and is counted.
    Closed,
    /// Nothing passes until then.
    Open(Instant),
    /// One request is trying; it may not come back, so it has a time.
    Trying(Instant),
}

/// A part of the window.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    since: Instant,
    all: u64,
    failed: u64,
}

/// A request that was let through; [`Attempt::report_outcome`] is to be told how it went.
#[derive(Debug)]
pub struct Attempt {
    breaker: Arc<Breaker>,
    since: Instant,
    is_probe: bool,
    reported: bool,
}

impl Breaker {
    /// A breaker that lets everything through until it fails.
    pub fn new(limits: BreakerLimits) -> Arc<Self> {
        let state = BreakerState { phase: BreakerPhase::Closed, buckets: Vec::new() };
        Arc::new(Self { limits, state: Mutex::new(state) })
    }

    /// Lets a request through, unless the circuit is open.
    pub fn try_once(self: &Arc<Self>, now: Instant) -> Option<Attempt> {
        let mut state = self.lock_state();
        let is_probe = match state.phase {
            BreakerPhase::Closed => false,
            BreakerPhase::Open(until) | BreakerPhase::Trying(until) if now < until => return None,
            BreakerPhase::Open(_) | BreakerPhase::Trying(_) => {
                state.phase = BreakerPhase::Trying(now + self.limits.tripped);
                true
            }
        };
        Some(Attempt { breaker: self.clone(), since: now, is_probe, reported: false })
    }

    fn record_outcome(&self, now: Instant, is_probe: bool, good: bool) {
        let mut state = self.lock_state();
        if is_probe {
            state.buckets.clear();
            state.phase = if good {
                BreakerPhase::Closed
            } else {
                BreakerPhase::Open(now + self.limits.tripped)
            };
            return;
        }
        if state.phase != BreakerPhase::Closed {
            return;
        }
        let BreakerLimits { window, buckets, volume, share, .. } = self.limits;
        let width = window / u32::try_from(buckets).unwrap_or(1).max(1);
        state.buckets.retain(|bucket| now.duration_since(bucket.since) < window);
        match state.buckets.last_mut().filter(|last| now.duration_since(last.since) < width) {
            Some(last) => last.add_outcome(good),
            None => {
                let mut bucket = Bucket { since: now, all: 0, failed: 0 };
                bucket.add_outcome(good);
                state.buckets.push(bucket);
            }
        }
        let all: u64 = state.buckets.iter().map(|bucket| bucket.all).sum();
        let failed: u64 = state.buckets.iter().map(|bucket| bucket.failed).sum();
        if all >= volume && failed > 0 && failed as f64 >= share * all as f64 {
            state.phase = BreakerPhase::Open(now + self.limits.tripped);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn add_outcome(&mut self, good: bool) {
        self.all += 1;
        self.failed += u64::from(!good);
    }
}

impl Attempt {
    /// Says how it went.
    pub fn report_outcome(mut self, good: bool, now: Instant) {
        self.reported = true;
        self.breaker.record_outcome(now, self.is_probe, good);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // A visitor who left says nothing of the backend, but the next one may try.
        if !self.reported && self.is_probe {
            self.breaker.lock_state().phase = BreakerPhase::Open(self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Arc<Breaker> {
        let second = Duration::from_secs(1);
        Breaker::new(BreakerLimits {
            tripped: second,
            window: 10 * second,
            buckets: 10,
            volume: 4,
            share: 0.5,
        })
    }

    fn run(breaker: &Arc<Breaker>, now: Instant, good: bool) -> bool {
        let Some(mut attempt) = breaker.try_once(now) else { return false };
        attempt.reported = true;
        breaker.record_outcome(now, attempt.is_probe, good);
        true
    }

    #[test]
    fn too_many_failures_turn_requests_away_until_one_succeeds() {
        let breaker = breaker();
        let start = Instant::now();
        for good in [true, true, false, false] {
            assert!(run(&breaker, start, good));
        }

        assert!(!run(&breaker, start, true), "open");
        let later = start + Duration::from_millis(1001);
        assert!(run(&breaker, later, false), "a probe");
        assert!(!run(&breaker, later, true), "it failed");
        let later = later + Duration::from_millis(1001);
        let probe = breaker.try_once(later).unwrap();
        assert!(!run(&breaker, later, true), "one probe at a time");
        probe.report_outcome(true, later);
        assert!(run(&breaker, later, false));
    }

    #[test]
    fn failures_are_forgotten_with_the_window() {
        let breaker = breaker();
        let start = Instant::now();
        for _ in 0..3 {
            run(&breaker, start, false);
        }

        let later = start + Duration::from_secs(10);
        for good in [true, true, true, false] {
            assert!(run(&breaker, later, good));
        }

        assert!(run(&breaker, later, true));
    }
}
