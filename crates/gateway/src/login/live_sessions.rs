//! Which sessions are stored, as far as this node has asked: each is looked up once, until it is changed.
//!
//! A session that nobody has stored is over, so that what is forgotten here lets nobody in: it is looked up
//! again. Every node is notified of a change, and then forgets what it knew of that session. While nothing
//! can be looked up, sessions that were known go on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::login::failures::LastFailure;
use crate::login::records::{LoginActivity, LoginRecords, LoginRecordsError};
use crate::published::FairCache;

/// What the identifiers of sessions begin with.
const PREFIX: &str = "as_";
/// How many sessions are known at most; each takes less than 100 bytes.
const MAX_SESSIONS: usize = 200_000;
/// How many sessions are looked up at once.
const MAX_LOOKUPS: usize = 32;
/// How long it may take to look a session up, with the wait for others.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long nothing is looked up after that has failed.
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// The same for a session that was stored when it was looked up before: its visitor does not wait for long, and
/// then goes on while the database is away.
const DOUBT_TIMEOUT: Duration = Duration::from_millis(500);
const DOUBT_TTL: Duration = Duration::from_secs(5);
/// How old the last request that is stored is at most, and at least, before another one is, in seconds.
const MAX_ACTIVITY_AGE: u32 = 5 * 60;
const MIN_ACTIVITY_AGE: u32 = 30;

/// The identifier of a session, without its prefix.
type SessionKey = [u8; 27];

/// Which sessions are stored, as far as it is known.
pub(super) struct LiveSessions {
    known: Mutex<KnownSessions>,
    /// A session is looked up once for all requests that wait for it.
    lookups: [tokio::sync::Mutex<()>; MAX_LOOKUPS],
    /// When a lookup has failed last.
    failed: LastFailure,
    /// When the lookup of a session that was known has taken too long for its visitor.
    late: LastFailure,
    began: Instant,
}

/// When something is asked.
#[derive(Clone, Copy)]
struct Moment {
    /// The second since this began.
    second: u32,
    /// Whether changes of other nodes are seen here at the moment.
    sees_changes: bool,
}

struct KnownSessions {
    sessions: FairCache<SessionKey, KnownSession>,
    /// How often all that was known has become doubtful, and [`LoginRecords::missed_changes`] as of then.
    epoch: u32,
    doubts: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionStatus {
    /// Nobody has looked.
    Unknown,
    Live,
    Ended,
    /// It has ended here, and may still be stored.
    EndedHere,
}

#[derive(Clone, Copy)]
struct KnownSession {
    status: SessionStatus,
    /// Whether it need not be looked up again.
    is_fresh: bool,
    /// The epoch in which it was looked up, and the second.
    epoch: u32,
    looked_up: u32,
    /// How often it was changed.
    changes: u32,
    /// The last request, and the last one that is stored, in seconds of Unix.
    active: u32,
    stored: u32,
    expires: u32,
    /// How old the last one that is stored may be.
    activity_age: u16,
}

impl Default for LiveSessions {
    fn default() -> Self {
        let known = KnownSessions { sessions: FairCache::new(MAX_SESSIONS), epoch: 0, doubts: 0 };
        Self {
            known: Mutex::new(known),
            lookups: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            failed: LastFailure::default(),
            late: LastFailure::default(),
            began: Instant::now(),
        }
    }
}

impl LiveSessions {
    /// Whether a session of a login is stored.
    ///
    /// # Errors
    /// When it was not known, and cannot be looked up at the moment.
    pub(super) async fn is_live(
        &self,
        (login, session_id): (u32, &str),
        records: &dyn LoginRecords,
    ) -> Result<bool, LoginRecordsError> {
        // Sessions of older versions were not stored.
        let Some(key) = key_of(session_id) else { return Ok(false) };
        let moment = self.current_moment(records);
        let (is_live, was_live) = self.lock_known().status_and_past(&key, moment);
        if let Some(is_live) = is_live {
            return Ok(is_live);
        }
        // Whoever was in need not wait for a database that is away, nor ask it again and again.
        if was_live && (self.has_failed() || self.late.is_within(DOUBT_TTL)) {
            return Ok(true);
        }
        let limit = if was_live { DOUBT_TIMEOUT } else { LOOKUP_TIMEOUT };
        let looked_up = timeout(limit, self.look_up(login, key, session_id, records)).await;
        let error = match looked_up {
            Ok(Ok(is_live)) => return Ok(is_live),
            Ok(Err(error)) => {
                self.record_failure(&error);
                error
            }
            Err(_) => {
                let error = LoginRecordsError(format!("no answer within {limit:?}"));
                // Those who were not in wait longer, and may still get an answer.
                match was_live {
                    true => self.late.record_failure("looked up in time", &error),
                    false => self.record_failure(&error),
                }
                error
            }
        };
        match self.lock_known().sessions.get(&key).map(|it| it.status) {
            Some(SessionStatus::Live) => Ok(true),
            Some(SessionStatus::Ended | SessionStatus::EndedHere) => Ok(false),
            Some(SessionStatus::Unknown) | None => Err(error),
        }
    }

    async fn look_up(
        &self,
        login: u32,
        key: SessionKey,
        session_id: &str,
        records: &dyn LoginRecords,
    ) -> Result<bool, LoginRecordsError> {
        let lookup = key.last().map_or(0, |last| usize::from(*last)) % MAX_LOOKUPS;
        let _lookup = self.lookups[lookup].lock().await;
        let moment = self.current_moment(records);
        if let Some(is_live) = self.lock_known().live_status(&key, moment) {
            return Ok(is_live);
        }
        if self.has_failed() {
            return Err(LoginRecordsError("the last lookup has failed".to_owned()));
        }
        let before = self.lock_known().begin_lookup(login, key);
        let stored = records.last_active(session_id).await?;
        self.lock_known().end_lookup(&key, before, (stored, moment.second));
        self.failed.clear_failure();
        self.late.clear_failure();
        Ok(stored.is_some())
    }

    /// The moment of a question, with what is known then of changes.
    fn current_moment(&self, records: &dyn LoginRecords) -> Moment {
        let doubts = records.missed_changes();
        if let Some(doubts) = doubts {
            self.lock_known().apply_missed_changes(doubts);
        }
        let second = u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX);
        Moment { second, sees_changes: doubts.is_some() }
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownSessions> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing could be looked up a moment ago.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_within(FAILURE_TTL)
    }

    /// Notes that nothing can be looked up: for a moment nobody looks.
    pub(super) fn record_failure(&self, error: &LoginRecordsError) {
        if !self.has_failed() {
            self.failed.record_failure("looked up", error);
        }
    }

    /// Whether it is known that a session has ended.
    pub(super) fn has_ended(&self, session_id: &str) -> bool {
        let known = self.lock_known();
        let status = key_of(session_id).and_then(|key| Some(known.sessions.get(&key)?.status));
        matches!(status, Some(SessionStatus::Ended | SessionStatus::EndedHere))
    }

    /// Whether a session has ended here, and may still be stored.
    pub(super) fn has_ended_here(&self, session_id: &str) -> bool {
        let known = self.lock_known();
        let session = key_of(session_id).and_then(|key| known.sessions.get(&key));
        session.is_some_and(|it| it.status == SessionStatus::EndedHere)
    }

    /// Ends a session here; whether it is still stored is said by [`LiveSessions::mark_removed`].
    pub(super) fn mark_ended_here(&self, login: u32, session_id: &str) {
        let Some(key) = key_of(session_id) else { return };
        self.lock_known().get_or_insert(login, key).status = SessionStatus::EndedHere;
    }

    /// Notes that a session that has ended here is not stored any more.
    pub(super) fn mark_removed(&self, session_id: &str) {
        let Some(key) = key_of(session_id) else { return };
        let mut known = self.lock_known();
        let epoch = known.epoch;
        if let Some(session) = known.sessions.get_mut(&key) {
            (session.status, session.is_fresh, session.epoch) = (SessionStatus::Ended, true, epoch);
        }
    }

    /// Forgets what is known of sessions that have changed; of all where nobody knows which.
    pub(super) fn forget_changed(&self, session_ids: Option<&[String]>) {
        let mut known = self.lock_known();
        let Some(session_ids) = session_ids else {
            known.epoch = known.epoch.wrapping_add(1);
            return;
        };
        for key in session_ids.iter().filter_map(|id| key_of(id)) {
            let Some(session) = known.sessions.get_mut(&key) else { continue };
            session.changes = session.changes.wrapping_add(1);
            session.is_fresh = false;
            // Its requests are not stored by a change that nodes are notified of: it was removed, or is there again.
            if session.status != SessionStatus::EndedHere {
                session.status = SessionStatus::Unknown;
            }
        }
    }

    /// How many sessions are known that have not ended, at a second of Unix.
    pub(super) fn count_live(&self, now: i64) -> usize {
        let (known, now) = (self.lock_known(), clamp_seconds(now));
        let is_live = |it: &KnownSession| it.status == SessionStatus::Live && !it.is_over(now);
        known.sessions.iter().filter(|(_, session)| is_live(session)).count()
    }

    /// Notes a request, at a second of Unix; the session ends in so many seconds if it is not used.
    pub(super) fn record_request(&self, session_id: &str, (now, left, idle): (i64, i64, i64)) {
        let Some(key) = key_of(session_id) else { return };
        if let Some(session) = self.lock_known().sessions.get_mut(&key) {
            session.active = clamp_seconds(now).max(session.active);
            session.expires = clamp_seconds(now.saturating_add(left));
            let age = (clamp_seconds(idle) / 2).clamp(MIN_ACTIVITY_AGE, MAX_ACTIVITY_AGE);
            session.activity_age = u16::try_from(age).unwrap_or(u16::MAX);
        }
    }

    /// The requests that are to be stored; `all` with those that could still wait. What has ended is forgotten.
    pub(super) fn due_activity(&self, now: i64, all: bool) -> Vec<LoginActivity> {
        let mut known = self.lock_known();
        let now = clamp_seconds(now);
        known.sessions.retain(|it| it.status == SessionStatus::EndedHere || !it.is_over(now));
        // What counts is how old that is which is stored, by whichever node: the last request of a visit is
        // stored as well, however short the visit was.
        let is_due = |it: &KnownSession| {
            let is_old = all || now.saturating_sub(it.stored) >= it.activity_age.into();
            it.status == SessionStatus::Live && it.active > it.stored && is_old
        };
        let due = known.sessions.iter().filter(|(_, session)| is_due(session));
        let of = |(key, it): (&SessionKey, &KnownSession)| LoginActivity {
            session_id: id_of(key),
            last_active: it.active.into(),
            expires: it.expires.into(),
        };
        due.map(of).collect()
    }

    /// Notes that these requests are stored.
    pub(super) fn activity_stored(&self, activity: &[LoginActivity]) {
        let mut known = self.lock_known();
        for it in activity {
            let key = key_of(&it.session_id);
            if let Some(session) = key.and_then(|key| known.sessions.get_mut(&key)) {
                session.stored = clamp_seconds(it.last_active).max(session.stored);
            }
        }
    }

    /// The sessions that have ended here, and may still be stored.
    pub(super) fn ended_here(&self) -> Vec<String> {
        let known = self.lock_known();
        let ended = known.sessions.iter().filter(|(_, it)| it.status == SessionStatus::EndedHere);
        ended.map(|(key, _)| id_of(key)).collect()
    }
}

impl KnownSessions {
    /// Doubts everything when something may have changed without a word.
    fn apply_missed_changes(&mut self, doubts: u64) {
        if self.doubts < doubts {
            self.doubts = doubts;
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Whether a session is live; none where it is to be looked up.
    fn live_status(&self, key: &SessionKey, moment: Moment) -> Option<bool> {
        let session = self.sessions.get(key)?;
        match session.status {
            SessionStatus::EndedHere => Some(false),
            _ if !session.is_fresh || session.epoch != self.epoch => None,
            // Where nobody says what other nodes change, it is looked for once a second.
            SessionStatus::Live if !moment.sees_changes && session.looked_up != moment.second => {
                None
            }
            SessionStatus::Live => Some(true),
            SessionStatus::Ended => Some(false),
            SessionStatus::Unknown => None,
        }
    }

    /// The same, and whether the session was live when it was looked up last.
    fn status_and_past(&self, key: &SessionKey, moment: Moment) -> (Option<bool>, bool) {
        let past = self.sessions.get(key).map(|it| it.status);
        (self.live_status(key, moment), past == Some(SessionStatus::Live))
    }

    fn get_or_insert(&mut self, login: u32, key: SessionKey) -> &mut KnownSession {
        let new = KnownSession {
            status: SessionStatus::Unknown,
            is_fresh: false,
            epoch: self.epoch,
            looked_up: 0,
            changes: 0,
            active: 0,
            stored: 0,
            expires: u32::MAX,
            activity_age: 0,
        };
        self.sessions.get_or_insert((login, key), || new, KnownSession::age)
    }

    /// Begins to look a session up; gives the state that the result is of.
    fn begin_lookup(&mut self, login: u32, key: SessionKey) -> (u32, u32) {
        (self.epoch, self.get_or_insert(login, key).changes)
    }

    /// Notes what was found, unless the session was changed meanwhile.
    fn end_lookup(
        &mut self,
        key: &SessionKey,
        (epoch, changes): (u32, u32),
        (stored, second): (Option<i64>, u32),
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.changes != changes || session.status == SessionStatus::EndedHere {
            return;
        }
        session.status = match stored {
            Some(_) => SessionStatus::Live,
            None => SessionStatus::Ended,
        };
        session.stored = stored.map(clamp_seconds).unwrap_or_default();
        (session.is_fresh, session.epoch, session.looked_up) = (true, epoch, second);
    }
}

impl KnownSession {
    /// What is forgotten first where there is no room: not what is still to be removed.
    fn age(&self) -> u32 {
        match self.status {
            SessionStatus::EndedHere => u32::MAX,
            _ => self.active,
        }
    }

    fn is_over(&self, now: u32) -> bool {
        self.expires < now
    }
}

fn key_of(session_id: &str) -> Option<SessionKey> {
    session_id.strip_prefix(PREFIX)?.as_bytes().try_into().ok()
}

fn id_of(key: &SessionKey) -> String {
    format!("{PREFIX}{}", String::from_utf8_lossy(key))
}

fn clamp_seconds(time: i64) -> u32 {
    u32::try_from(time.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
