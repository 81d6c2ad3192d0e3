//! What a node remembers of logins, beside what visitors carry: bounded, and gone when it ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;

use crate::gateway::login::issuer::LoginError;
use crate::gateway::login::session::LoginSession;

/// How many sessions that were logged out, and how many logins that have ended, are remembered.
const MAX_REMEMBERED: usize = 65_536;
/// How many sessions are remembered that were renewed.
const MAX_RENEWALS: usize = 16_384;
/// How long what a renewal has brought is remembered for visitors with older cookies.
const RENEWAL_TTL: Duration = Duration::from_secs(10 * 60);
/// How long nobody asks again after an issuer could not be asked.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// What a node remembers of logins.
#[derive(Default)]
pub(super) struct Memory {
    revoked: Remembered,
    ended: Remembered,
    pub renewals: Renewals,
}

impl Memory {
    /// Whether a session was logged out here.
    pub(super) fn is_revoked(&self, session: &str) -> bool {
        self.revoked.entries().contains_key(session)
    }

    /// Remembers that a session was logged out, until no cookie of it is good any more.
    pub(super) fn revoke(&self, session: &str, last_moment: i64) {
        self.revoked.insert(session, last_moment);
        self.renewals.forget(session);
    }

    /// Remembers that a login has ended; false when it had before.
    pub(super) fn end_login(&self, state: &str, last_moment: i64) -> bool {
        self.ended.insert(state, last_moment)
    }
}

/// Names with the moment after which they need not be remembered, in seconds of Unix.
#[derive(Default)]
struct Remembered(Mutex<HashMap<String, i64>>);

impl Remembered {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a name; false when it is there.
    fn insert(&self, name: &str, last_moment: i64) -> bool {
        let mut entries = self.entries();
        if entries.len() >= MAX_REMEMBERED {
            let now = Utc::now().timestamp();
            entries.retain(|_, last| *last >= now);
        }
        if entries.len() >= MAX_REMEMBERED {
            tracing::warn!("more logins and logouts are to be remembered than there is room for");
            let first = entries.iter().min_by_key(|(_, last)| **last);
            let first = first.map(|(name, _)| name.clone());
            first.map(|name| entries.remove(&name));
        }
        entries.insert(name.to_owned(), last_moment).is_none()
    }
}

/// Sessions whose issuers are being asked, or were a while ago.
#[derive(Default)]
pub(super) struct Renewals(Mutex<HashMap<String, Arc<RenewalSlot>>>);

/// What is known of the renewal of one session.
pub(super) struct RenewalSlot {
    /// Held by whoever asks the issuer.
    pub flight: tokio::sync::Mutex<()>,
    result: Mutex<RenewalResult>,
}

struct RenewalResult {
    since: Instant,
    session: Option<LoginSession>,
    failure: Option<LoginError>,
}

impl Renewals {
    fn slots(&self) -> MutexGuard<'_, HashMap<String, Arc<RenewalSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a session that is newer than what its visitor carries.
    pub(super) fn newer(&self, session: &LoginSession) -> Option<LoginSession> {
        let slot = self.slots().get(&session.id).cloned()?;
        slot.newer(session)
    }

    /// Where the renewal of a session is kept.
    pub(super) fn slot(&self, session: &str) -> Arc<RenewalSlot> {
        let mut slots = self.slots();
        if let Some(known) = slots.get(session) {
            return known.clone();
        }
        if slots.len() >= MAX_RENEWALS {
            slots.retain(|_, slot| !slot.is_old());
        }
        if slots.len() >= MAX_RENEWALS {
            let oldest = slots.iter().min_by_key(|(_, slot)| slot.result().since);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| slots.remove(&name));
        }
        let result = RenewalResult { since: Instant::now(), session: None, failure: None };
        let slot = RenewalSlot { flight: tokio::sync::Mutex::default(), result: result.into() };
        let slot = Arc::new(slot);
        slots.insert(session.to_owned(), slot.clone());
        slot
    }

    fn forget(&self, session: &str) {
        self.slots().remove(session);
    }
}

impl RenewalSlot {
    fn result(&self) -> MutexGuard<'_, RenewalResult> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_old(&self) -> bool {
        self.result().since.elapsed() > RENEWAL_TTL
    }

    /// What has become of the session since.
    pub(super) fn newer(&self, session: &LoginSession) -> Option<LoginSession> {
        let result = self.result();
        let newer = result.session.as_ref().filter(|it| it.generation > session.generation)?;
        // Requests were noted in the cookies.
        Some(LoginSession { seen: newer.seen.max(session.seen), is_stale: true, ..newer.clone() })
    }

    /// Why the issuer could not be asked a moment ago.
    pub(super) fn failure(&self) -> Option<LoginError> {
        let result = self.result();
        result.failure.clone().filter(|_| result.since.elapsed() < FAILURE_TTL)
    }

    /// Keeps what came of asking.
    pub(super) fn keep(&self, renewed: &Result<LoginSession, LoginError>) {
        let mut result = self.result();
        result.since = Instant::now();
        match renewed {
            Ok(session) => (result.session, result.failure) = (Some(session.clone()), None),
            Err(failure) => result.failure = Some(failure.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_ends_once() {
        let memory = Memory::default();

        assert!(memory.end_login("a", 1));
        assert!(!memory.end_login("a", 1));
        assert!(memory.end_login("b", 1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let memory = Memory::default();
        let later = Utc::now().timestamp() + 1000;

        memory.revoke("last", later + 1);
        for number in 0..MAX_REMEMBERED + 10 {
            memory.revoke(&number.to_string(), later);
        }

        assert_eq!(memory.revoked.entries().len(), MAX_REMEMBERED);
        assert!(memory.is_revoked("last"), "what could be used for longest stays");
    }
}
