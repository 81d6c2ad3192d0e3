//! How long the database may take, and when it has failed last, so that not every visitor waits for it in vain.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::gateway::login::records::{LoginRecordsError, RecordFuture};

/// How long it may take to store a session, to remove it, or to look for the end of a login.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a failure is logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What comes of looking something up or storing it, unless it takes too long.
pub(super) async fn in_time<T>(result: RecordFuture<'_, T>) -> Result<T, LoginRecordsError> {
    let late = |_| LoginRecordsError(format!("no answer within {RECORD_TIMEOUT:?}"));
    timeout(RECORD_TIMEOUT, result).await.map_err(late).flatten()
}

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
