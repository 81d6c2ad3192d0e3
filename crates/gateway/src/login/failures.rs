//! How long the database may take, and when it has failed last, so that not every visitor waits for it in vain.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::login::records::{LoginRecords, LoginRecordsError, NewLoginSession, RecordFuture};

/// How long it may take to store a session, to remove it, or to look for the end of a login.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a failure is logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What comes of looking something up or storing it, unless it takes too long.
pub(super) async fn with_record_timeout<T>(
    result: RecordFuture<'_, T>,
) -> Result<T, LoginRecordsError> {
    let late = |_| LoginRecordsError(format!("no answer within {RECORD_TIMEOUT:?}"));
    timeout(RECORD_TIMEOUT, result).await.map_err(late).flatten()
}

/// Stores a session within a time; its identifier, or none where its login has made one before. One that is stored
/// later is removed: its visitor has learned that there is none.
pub(super) async fn create_with_timeout(
    records: Arc<dyn LoginRecords>,
    new: NewLoginSession,
    limit: Duration,
) -> Result<Option<String>, LoginRecordsError> {
    let creating = records.clone();
    let mut created = tokio::spawn(async move { creating.create_session(new).await });
    if let Ok(created) = timeout(limit, &mut created).await {
        return created.map_err(|error| LoginRecordsError(error.to_string())).flatten();
    }
    tokio::spawn(async move {
        if let Ok(Ok(Some(late))) = created.await
            && let Err(err) = records.remove_session(&late).await
        {
            tracing::warn!(%err, "a session that was stored too late stays until it ends");
        }
    });
    Err(LoginRecordsError(format!("no answer within {limit:?}")))
}

/// When something has failed last.
#[derive(Default)]
pub(super) struct LastFailure {
    at: Mutex<Option<Instant>>,
}

impl LastFailure {
    /// Notes that something has failed now, and logs it where that was not done a moment ago.
    pub(super) fn record_failure(&self, what: &'static str, error: &LoginRecordsError) {
        if !self.is_within(LOG_INTERVAL) {
            tracing::warn!(err = %error, "sessions of visitors cannot be {what}");
        }
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Forgets it, as it has not failed now.
    pub(super) fn clear_failure(&self) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it has failed within this time.
    pub(super) fn is_within(&self, time: Duration) -> bool {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Notify, mpsc};

    use super::*;
    use crate::login::records::LoginAttemptId;

    /// A database that stores when it is let.
    struct Slow {
        stores: Arc<Notify>,
        removed: mpsc::UnboundedSender<String>,
    }

    impl LoginRecords for Slow {
        fn has_ended<'a>(&'a self, _: &'a LoginAttemptId) -> RecordFuture<'a, bool> {
            Box::pin(async { Ok(false) })
        }

        fn create_session(&self, _: NewLoginSession) -> RecordFuture<'_, Option<String>> {
            Box::pin(async {
                self.stores.notified().await;
                Ok(Some("as_late".to_owned()))
            })
        }

        fn last_active<'a>(&'a self, _: &'a str) -> RecordFuture<'a, Option<i64>> {
            Box::pin(async { Ok(None) })
        }

        fn remove_session<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, ()> {
            self.removed.send(session_id.to_owned()).unwrap();
            Box::pin(async { Ok(()) })
        }

        fn missed_changes(&self) -> Option<u64> {
            Some(0)
        }
    }

    #[tokio::test]
    async fn a_session_that_is_stored_too_late_is_removed() {
        let (removed, mut removals) = mpsc::unbounded_channel();
        let stores = Arc::<Notify>::default();
        let records = Arc::new(Slow { stores: stores.clone(), removed });
        let limit = Duration::from_millis(50);
        let session = NewLoginSession::of(("ada", "state"), (1, 1));

        assert!(create_with_timeout(records.clone(), session.clone(), limit).await.is_err());
        stores.notify_one();
        assert_eq!(removals.recv().await.as_deref(), Some("as_late"));

        stores.notify_one();
        let created = create_with_timeout(records, session, Duration::from_secs(60)).await;
        assert_eq!(created.unwrap().as_deref(), Some("as_late"));
        assert!(removals.try_recv().is_err(), "it stays");
    }
}
