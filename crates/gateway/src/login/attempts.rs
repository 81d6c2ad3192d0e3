//! Whether a login has made a session before: anybody may ask that who has begun one.

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::login::failures::{RECORD_TIMEOUT, with_record_timeout};
use crate::login::live_sessions::LiveSessions;
use crate::login::records::{LoginAttemptId, LoginRecords, LoginRecordsError};

/// How many logins are looked for at once: few of the connections that everything else is read over.
const MAX_LOOKUPS: usize = 4;

/// Looks for logins that have made a session.
pub(super) struct AttemptLookups(Semaphore);

impl Default for AttemptLookups {
    fn default() -> Self {
        Self(Semaphore::new(MAX_LOOKUPS))
    }
}

impl AttemptLookups {
    /// Whether a login has made a session, on any node.
    ///
    /// # Errors
    /// When that cannot be looked up at the moment.
    pub(super) async fn has_ended(
        &self,
        attempt: &LoginAttemptId,
        (records, sessions): (&dyn LoginRecords, &LiveSessions),
    ) -> Result<bool, LoginRecordsError> {
        // Too many who ask are no failure of the database.
        let slot = timeout(RECORD_TIMEOUT, self.0.acquire()).await;
        let _slot = slot.map_err(|_| LoginRecordsError("too many logins come back".to_owned()))?;
        if sessions.has_failed() {
            return Err(LoginRecordsError("the last lookup has failed".to_owned()));
        }
        let found = with_record_timeout(records.has_ended(attempt)).await;
        found.inspect_err(|error| sessions.record_failure(error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::login::records::{NewLoginSession, RecordFuture};

    /// A database that answers nobody.
    #[derive(Default)]
    struct Hanging(AtomicUsize);

    impl LoginRecords for Hanging {
        fn has_ended<'a>(&'a self, _: &'a LoginAttemptId) -> RecordFuture<'a, bool> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }

        fn create_session(&self, _: NewLoginSession) -> RecordFuture<'_, Option<String>> {
            Box::pin(std::future::pending())
        }

        fn last_active<'a>(&'a self, _: &'a str) -> RecordFuture<'a, Option<i64>> {
            Box::pin(std::future::pending())
        }

        fn remove_session<'a>(&'a self, _: &'a str) -> RecordFuture<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn missed_changes(&self) -> Option<u64> {
            Some(0)
        }
    }

    #[tokio::test]
    async fn few_are_looked_for_at_once_and_none_after_a_failure() {
        let attempt = LoginAttemptId { state: "state".to_owned(), ends: 1 };
        let lookups = Arc::new(AttemptLookups::default());
        let sessions = Arc::new(LiveSessions::default());
        let records = Arc::new(Hanging::default());
        let mut asking = Vec::new();
        for _ in 0..3 * MAX_LOOKUPS {
            let (lookups, sessions) = (lookups.clone(), sessions.clone());
            let (records, attempt) = (records.clone(), attempt.clone());
            asking.push(tokio::spawn(async move {
                lookups.has_ended(&attempt, (&*records, &sessions)).await
            }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(records.0.load(Ordering::Relaxed), MAX_LOOKUPS);

        asking.iter().for_each(|asks| asks.abort());
        for asks in asking {
            assert!(asks.await.is_err(), "nobody gets an answer");
        }
        sessions.record_failure(&LoginRecordsError("away".to_owned()));
        assert!(lookups.has_ended(&attempt, (&*records, &sessions)).await.is_err());
        assert_eq!(records.0.load(Ordering::Relaxed), MAX_LOOKUPS);
    }
}
