//! Who is logged in at the console: in memory, and so at this node alone.
//!
//! A session has two secrets. The browser keeps one as a cookie that no script can read, and the page
//! keeps the other for its own origin: browsers send cookies to every port of a host, and another port may
//! belong to somebody's tunnel.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use sha2::{Digest, Sha256};

use crate::accounts::Caller;
use crate::{Refusal, Result};

/// How long a session lasts in which nothing is asked for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// How long a session lasts at most.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// How many sessions there are at most.
const MAX_SESSIONS: usize = 1000;
/// How many sessions a key has at most, and all keys of an owner; one more ends the one that was idle longest.
const MAX_SESSIONS_OF_KEY: usize = 10;
const MAX_SESSIONS_OF_OWNER: usize = 100;
/// The random bytes of each secret.
const SECRET_BYTES: usize = 32;

/// What a session is found by; the secrets themselves are not kept.
pub(super) type SessionDigest = [u8; 32];

/// The secrets of a session.
pub(super) struct SessionSecrets {
    /// For the cookie.
    pub cookie: String,
    /// For the page, which sends it in a header.
    pub token: String,
}

/// The sessions of a node.
#[derive(Default)]
pub(super) struct ConsoleSessions(Mutex<HashMap<SessionDigest, ConsoleSession>>);

struct ConsoleSession {
    key_id: String,
    owner_id: String,
    /// What the requests of the session carry on their way to the operations.
    authorization: HeaderValue,
    begun: Instant,
    used: Instant,
}

impl SessionSecrets {
    fn random() -> Result<Self> {
        Ok(Self { cookie: random_text()?, token: random_text()? })
    }

    /// What finds the session of both.
    pub fn digest(cookie: &str, token: &str) -> SessionDigest {
        Sha256::new().chain_update(cookie).chain_update(".").chain_update(token).finalize().into()
    }
}

impl ConsoleSession {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= IDLE_TIMEOUT || now.duration_since(self.begun) >= LIFETIME
    }
}

impl ConsoleSessions {
    /// Begins a session for whoever has shown a key.
    pub fn start_session(
        &self,
        caller: &Caller,
        mut authorization: HeaderValue,
        now: Instant,
    ) -> Result<SessionSecrets> {
        authorization.set_sensitive(true);
        let secrets = SessionSecrets::random()?;
        let mut sessions = self.lock_sessions();
        sessions.retain(|_, session| !session.is_over(now));
        let Caller { key_id, owner_id, .. } = caller;
        end_idlest(&mut sessions, MAX_SESSIONS_OF_KEY, |it| it.key_id == *key_id);
        end_idlest(&mut sessions, MAX_SESSIONS_OF_OWNER, |it| it.owner_id == *owner_id);
        if sessions.len() >= MAX_SESSIONS {
            return Err(Refusal::console_is_full());
        }
        let (key_id, owner_id) = (key_id.clone(), owner_id.clone());
        let session = ConsoleSession { key_id, owner_id, authorization, begun: now, used: now };
        sessions.insert(SessionSecrets::digest(&secrets.cookie, &secrets.token), session);
        Ok(secrets)
    }

    /// The key of a session, which is used now; none where it is over.
    pub fn use_authorization(&self, digest: &SessionDigest, now: Instant) -> Option<HeaderValue> {
        let key = self.peek_authorization(digest, now)?;
        if let Some(session) = self.lock_sessions().get_mut(digest) {
            session.used = now;
        }
        Some(key)
    }

    /// The key of a session, which a page may ask for all the time without its user; none where it is
    /// over.
    pub fn peek_authorization(&self, digest: &SessionDigest, now: Instant) -> Option<HeaderValue> {
        let mut sessions = self.lock_sessions();
        if sessions.get(digest)?.is_over(now) {
            sessions.remove(digest);
            return None;
        }
        sessions.get(digest).map(|session| session.authorization.clone())
    }

    /// Ends a session.
    pub fn end_session(&self, digest: &SessionDigest) {
        self.lock_sessions().remove(digest);
    }

    /// Whether a session is not over; asking does not use it.
    pub fn has_session(&self, digest: &SessionDigest, now: Instant) -> bool {
        self.lock_sessions().get(digest).is_some_and(|session| !session.is_over(now))
    }

    /// Whether anybody is logged in.
    pub fn has_any(&self, now: Instant) -> bool {
        self.lock_sessions().values().any(|session| !session.is_over(now))
    }

    fn lock_sessions(&self) -> MutexGuard<'_, HashMap<SessionDigest, ConsoleSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more session of those that may be `most`.
fn end_idlest(
    sessions: &mut HashMap<SessionDigest, ConsoleSession>,
    most: usize,
    is_own: impl Fn(&ConsoleSession) -> bool,
) {
    let own = || sessions.iter().filter(|(_, session)| is_own(session));
    if own().count() < most {
        return;
    }
    if let Some(idlest) = own().min_by_key(|(_, session)| session.used).map(|(digest, _)| *digest) {
        sessions.remove(&idlest);
    }
}

fn random_text() -> Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| Refusal::console_is_full())?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key_id: &str, owner_id: &str) -> Caller {
        Caller { key_id: key_id.to_owned(), owner_id: owner_id.to_owned(), admin: false }
    }

    fn begin(sessions: &ConsoleSessions, key_id: &str, now: Instant) -> SessionDigest {
        let value = HeaderValue::from_str(&format!("Bearer {key_id}")).unwrap();
        let secrets = sessions.start_session(&caller(key_id, key_id), value, now).unwrap();
        SessionSecrets::digest(&secrets.cookie, &secrets.token)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_too_long_and_at_the_latest_after_half_a_day() {
        let (sessions, start) = (ConsoleSessions::default(), Instant::now());
        let after = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let (idle, busy) = (begin(&sessions, "ak_1", start), begin(&sessions, "ak_1", start));

        for minutes in (30..720).step_by(30) {
            assert!(sessions.use_authorization(&busy, after(minutes)).is_some(), "{minutes}");
        }

        assert!(sessions.use_authorization(&idle, after(60)).is_none());
        assert!(sessions.use_authorization(&busy, after(720)).is_none());
        assert!(!sessions.has_any(after(720)));
    }

    #[test]
    fn looking_at_a_session_does_not_keep_it() {
        let (sessions, start) = (ConsoleSessions::default(), Instant::now());
        let session = begin(&sessions, "ak_1", start);

        assert!(sessions.has_session(&session, start + IDLE_TIMEOUT / 2));
        assert!(sessions.peek_authorization(&session, start + IDLE_TIMEOUT / 2).is_some());
        assert!(!sessions.has_session(&session, start + IDLE_TIMEOUT));
    }

    #[test]
    fn both_secrets_are_needed() {
        let (sessions, now) = (ConsoleSessions::default(), Instant::now());
        let key = HeaderValue::from_static("Bearer key");
        let secrets = sessions.start_session(&caller("ak_1", "usr_1"), key, now).unwrap();

        for (cookie, token) in [
            (secrets.cookie.as_str(), ""),
            ("", secrets.token.as_str()),
            (secrets.token.as_str(), secrets.cookie.as_str()),
        ] {
            assert!(
                sessions.use_authorization(&SessionSecrets::digest(cookie, token), now).is_none()
            );
        }
        let digest = SessionSecrets::digest(&secrets.cookie, &secrets.token);
        assert_eq!(sessions.use_authorization(&digest, now).unwrap(), "Bearer key");
        sessions.end_session(&digest);
        assert!(sessions.use_authorization(&digest, now).is_none());
    }

    #[test]
    fn many_keys_of_one_owner_leave_room_for_others() {
        let (sessions, now) = (ConsoleSessions::default(), Instant::now());
        let key = HeaderValue::from_static("Bearer key");

        for number in 0..MAX_SESSIONS {
            let own = caller(&format!("ak_{number}"), "bot_1");
            sessions.start_session(&own, key.clone(), now).unwrap();
        }

        assert_eq!(sessions.lock_sessions().len(), MAX_SESSIONS_OF_OWNER);
    }

    #[test]
    fn a_key_has_so_many_sessions_and_all_keys_so_many_more() {
        let (sessions, start) = (ConsoleSessions::default(), Instant::now());
        let at = |second: usize| start + Duration::from_secs(second as u64);
        let own: Vec<_> = (0..11).map(|second| begin(&sessions, "ak_own", at(second))).collect();
        assert!(!sessions.has_session(&own[0], at(11)));
        assert!(own[1..].iter().all(|session| sessions.has_session(session, at(11))));

        for number in 10..MAX_SESSIONS {
            begin(&sessions, &format!("ak_{number}"), at(11));
        }

        let key = HeaderValue::from_static("Bearer key");
        assert!(sessions.start_session(&caller("ak_more", "usr_1"), key.clone(), at(12)).is_err());
        assert!(sessions.has_session(&own[1], at(12)), "nobody is logged out by others");
        assert!(sessions.start_session(&caller("ak_own", "ak_own"), key.clone(), at(12)).is_ok());
        assert!(
            sessions.start_session(&caller("ak_more", "usr_1"), key, at(11) + IDLE_TIMEOUT).is_ok()
        );
    }
}
