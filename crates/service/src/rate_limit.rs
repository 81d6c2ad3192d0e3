//! So many requests in a rolling window, and no more.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ginnel_base::SlidingWindow;

use super::{Refusal, Result};

/// So many requests in a rolling window; refused ones do not count.
pub(super) struct RateLimit {
    requests: usize,
    window: Duration,
    answered: Mutex<SlidingWindow<Instant>>,
}

impl RateLimit {
    pub(super) fn new(requests: u32, window: Duration) -> Self {
        Self { requests: requests as usize, window, answered: Mutex::default() }
    }

    /// Counts a request, or refuses it with the time after which the next is welcome.
    pub(super) fn try_take(&self, now: Instant) -> Result<()> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(free) = answered.take(now, self.requests, self.window) else { return Ok(()) };
        let wait = free.saturating_duration_since(now);
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
        let message = format!(
            "more than {} requests in {} seconds; try again in {seconds}",
            self.requests,
            self.window.as_secs()
        );
        Err(Refusal::rate_limited(message, seconds))
    }
}
