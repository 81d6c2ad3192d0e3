//! When the database has failed last, so that not every visitor waits for it in vain.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::gateway::login::records::LoginRecordsError;

/// How often a failure is logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// When something has failed last.
#[derive(Default)]
pub(super) struct LastFailure {
    at: Mutex<Option<Instant>>,
}

impl LastFailure {
    /// Notes that something has failed now, and logs it where that was not done a moment ago.
    pub(super) fn note(&self, what: &'static str, error: &LoginRecordsError) {
        if !self.is_within(LOG_INTERVAL) {
            tracing::warn!(err = %error, "sessions of visitors cannot be {what}");
        }
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Forgets it, as it has not failed now.
    pub(super) fn forget(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it has failed within this time.
    pub(super) fn is_within(&self, time: Duration) -> bool {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < time)
    }
}
