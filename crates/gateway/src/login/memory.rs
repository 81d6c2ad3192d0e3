//! What a node remembers of logins, beside what visitors carry: bounded, and gone when it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;

use crate::login::issuer::{LoginError, LoginResult};
use crate::login::session::LoginSession;
use crate::published::FairCache;

/// How many logins that have ended are remembered.
const MAX_ENDED_LOGINS: usize = 65_536;
/// How many sessions are remembered that were renewed.
const MAX_RENEWALS: usize = 16_384;
/// How long what a renewal has brought is remembered for visitors with older cookies.
const RENEWAL_TTL: Duration = Duration::from_secs(10 * 60);
/// How long nobody asks again after an issuer could not be asked.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// What a node remembers of logins.
#[derive(Default)]
pub(super) struct Memory {
    ended: EndedLogins,
    pub renewals: Renewals,
}

impl Memory {
    /// Whether it is remembered that a login has ended.
    pub(super) fn has_ended(&self, state: &str) -> bool {
        self.ended.lock_states().get(&state.to_owned()).is_some()
    }

    /// Remembers that a login has ended; false when it had before. One that is forgotten is refused by
    /// whoever stores sessions.
    pub(super) fn end_login(&self, (login, state): (u32, &str), last_moment: i64) -> bool {
        self.ended.insert((login, state), last_moment)
    }
}

/// The states of logins with the moment after which they need not be remembered, in seconds of Unix.
struct EndedLogins(Mutex<FairCache<String, i64>>);

impl Default for EndedLogins {
    fn default() -> Self {
        Self(Mutex::new(FairCache::new(MAX_ENDED_LOGINS)))
    }
}

impl EndedLogins {
    fn lock_states(&self) -> MutexGuard<'_, FairCache<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a state; false when it is there.
    fn insert(&self, (login, state): (u32, &str), last_moment: i64) -> bool {
        let mut states = self.lock_states();
        if states.is_full() {
            let now = Utc::now().timestamp();
            states.retain(|last| *last >= now);
        }
        let state = state.to_owned();
        if states.get(&state).is_some() {
            return false;
        }
        states.get_or_insert((login, state), || last_moment, |last| *last);
        true
    }
}

/// Sessions whose issuers are being asked, or were a while ago.
pub(super) struct Renewals(Mutex<FairCache<String, Arc<RenewalSlot>>>);

impl Default for Renewals {
    fn default() -> Self {
        Self(Mutex::new(FairCache::new(MAX_RENEWALS)))
    }
}

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
    fn lock_slots(&self) -> MutexGuard<'_, FairCache<String, Arc<RenewalSlot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a session that is newer than what its visitor carries.
    pub(super) fn newer_session(&self, session: &LoginSession) -> Option<LoginSession> {
        let slot = self.lock_slots().get(&session.id).cloned()?;
        slot.newer_session(session)
    }

    /// Where the renewal of a session of a login is kept.
    pub(super) fn slot_for_session(&self, (login, session): (u32, &str)) -> Arc<RenewalSlot> {
        let mut slots = self.lock_slots();
        if slots.is_full() {
            slots.retain(|slot| !slot.is_old());
        }
        let new = || {
            let result = RenewalResult { since: Instant::now(), session: None, failure: None };
            let slot = RenewalSlot { flight: tokio::sync::Mutex::default(), result: result.into() };
            Arc::new(slot)
        };
        slots
            .get_or_insert((login, session.to_owned()), new, |slot| slot.lock_result().since)
            .clone()
    }

    /// Forgets a session that has ended.
    pub(super) fn forget_session(&self, session: &str) {
        self.lock_slots().remove(&session.to_owned());
    }
}

impl RenewalSlot {
    fn lock_result(&self) -> MutexGuard<'_, RenewalResult> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_old(&self) -> bool {
        self.lock_result().since.elapsed() > RENEWAL_TTL
    }

    /// What has become of the session since.
    pub(super) fn newer_session(&self, session: &LoginSession) -> Option<LoginSession> {
        let result = self.lock_result();
        let newer = result.session.as_ref().filter(|it| it.generation > session.generation)?;
        // Requests were noted in the cookies.
        let mut newer = LoginSession { is_stale: true, ..newer.clone() };
        newer.record_request(session.seen_at());
        Some(newer)
    }

    /// Why the issuer could not be asked a moment ago.
    pub(super) fn recent_failure(&self) -> Option<LoginError> {
        let result = self.lock_result();
        result.failure.clone().filter(|_| result.since.elapsed() < FAILURE_TTL)
    }

    /// Keeps what came of asking.
    pub(super) fn store_result(&self, renewed: &LoginResult<LoginSession>) {
        let mut result = self.lock_result();
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

        assert!(!memory.has_ended("a"));
        assert!(memory.end_login((0, "a"), 1));
        assert!(memory.has_ended("a"));
        assert!(!memory.end_login((0, "a"), 1));
        assert!(memory.end_login((0, "b"), 1));
    }

    #[test]
    fn nobody_has_the_logins_of_others_forgotten() {
        let memory = Memory::default();
        let later = Utc::now().timestamp() + 1000;

        memory.end_login((1, "small"), later);
        for number in 0..MAX_ENDED_LOGINS + 10 {
            memory.end_login((2, &number.to_string()), later + 1);
        }

        assert!(memory.ended.lock_states().iter().count() <= MAX_ENDED_LOGINS);
        assert!(!memory.end_login((1, "small"), later), "it is remembered");
    }
}
