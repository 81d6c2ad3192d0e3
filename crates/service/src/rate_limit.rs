//! So many requests in a rolling window, and no more.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Refusal;

/// So many requests in a rolling window; refused ones do not count.
pub(super) struct RateLimit {
    requests: usize,
    window: Duration,
    answered: Mutex<VecDeque<Instant>>,
}

impl RateLimit {
    pub(super) fn new(requests: u32, window: Duration) -> Self {
        Self { requests: requests as usize, window, answered: Mutex::default() }
    }

    /// Counts a request, or refuses it with the time after which the next is welcome.
    pub(super) fn take(&self, now: Instant) -> Result<(), Refusal> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        while answered.front().is_some_and(|first| now.duration_since(*first) >= self.window) {
            answered.pop_front();
        }
        if answered.len() < self.requests {
            answered.push_back(now);
            return Ok(());
        }
        let waited = answered.front().map_or(Duration::ZERO, |first| now.duration_since(*first));
        let seconds = self.window.saturating_sub(waited).as_secs_f64().ceil().max(1.0) as u64;
        let message = format!(
            "more than {} requests in {} seconds; try again in {seconds}",
            self.requests,
            self.window.as_secs()
        );
        Err(Refusal::rate_limited(message, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_rolls() {
        let limit = RateLimit::new(2, Duration::from_secs(60));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);

        assert!(limit.take(at(0)).is_ok());
        assert!(limit.take(at(30)).is_ok());
        assert!(limit.take(at(59)).is_err());
        assert!(limit.take(at(60)).is_ok());
        assert!(limit.take(at(61)).is_err());
        assert!(limit.take(at(90)).is_ok());
    }
}
