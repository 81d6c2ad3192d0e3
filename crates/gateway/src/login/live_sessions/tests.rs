//! What is known of sessions while they are used, changed and looked up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::login::records::{LoginAttemptId, NewLoginSession, RecordFuture};

/// The last request that is stored.
const STORED: i64 = 900;

/// Sessions that are stored, and how often they were looked up.
#[derive(Default)]
struct Stored {
    ids: Mutex<HashSet<String>>,
    lookups: AtomicU64,
    doubts: AtomicU64,
    is_away: AtomicBool,
    hangs: AtomicBool,
    is_blind: AtomicBool,
}

impl LoginRecords for Stored {
    fn has_ended<'a>(&'a self, _: &'a LoginAttemptId) -> RecordFuture<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    fn create_session(&self, _: NewLoginSession) -> RecordFuture<'_, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn last_active<'a>(&'a self, session_id: &'a str) -> RecordFuture<'a, Option<i64>> {
        Box::pin(async move {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            let is_stored = self.ids.lock().unwrap().contains(session_id);
            tokio::task::yield_now().await;
            if self.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            match self.is_away.load(Ordering::Relaxed) {
                true => Err(LoginRecordsError("away".to_owned())),
                false => Ok(is_stored.then_some(STORED)),
            }
        })
    }

    fn remove_session<'a>(&'a self, _: &'a str) -> RecordFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn missed_changes(&self) -> Option<u64> {
        let is_blind = self.is_blind.load(Ordering::Relaxed);
        (!is_blind).then(|| self.doubts.load(Ordering::Relaxed))
    }
}

fn id(number: u32) -> String {
    format!("{PREFIX}{number:027}")
}

fn stored(numbers: impl IntoIterator<Item = u32>) -> Stored {
    Stored { ids: Mutex::new(numbers.into_iter().map(id).collect()), ..Stored::default() }
}

#[tokio::test]
async fn a_session_is_looked_up_once_until_it_is_changed() {
    let (sessions, records) = (LiveSessions::default(), stored([1]));
    for _ in 0..3 {
        assert!(sessions.is_live((0, &id(1)), &records).await.unwrap());
        assert!(!sessions.is_live((0, &id(2)), &records).await.unwrap());
    }
    assert_eq!(records.lookups.load(Ordering::Relaxed), 2);

    records.ids.lock().unwrap().clear();
    sessions.forget_changed(Some(&[id(1)]));
    assert!(!sessions.is_live((0, &id(1)), &records).await.unwrap());

    records.ids.lock().unwrap().insert(id(1));
    sessions.forget_changed(None);
    assert!(sessions.is_live((0, &id(1)), &records).await.unwrap());
    records.ids.lock().unwrap().clear();
    records.doubts.store(1, Ordering::Relaxed);
    assert!(!sessions.is_live((0, &id(1)), &records).await.unwrap());
}

#[tokio::test]
async fn a_change_during_a_lookup_is_not_missed() {
    let (sessions, records) = (LiveSessions::default(), stored([1]));
    let session_id = id(1);
    let lookup = sessions.is_live((0, &session_id), &records);
    let remove = async {
        records.ids.lock().unwrap().clear();
        sessions.forget_changed(Some(&[id(1)]));
    };

    let (_, ()) = tokio::join!(lookup, remove);

    assert!(!sessions.is_live((0, &id(1)), &records).await.unwrap());
}

#[tokio::test]
async fn while_nothing_can_be_looked_up_known_sessions_go_on_and_others_do_not() {
    let (sessions, records) = (LiveSessions::default(), stored([1, 2, 3]));
    for number in [1, 2] {
        assert!(sessions.is_live((0, &id(number)), &records).await.unwrap());
    }
    records.is_away.store(true, Ordering::Relaxed);
    sessions.forget_changed(None);
    sessions.forget_changed(Some(&[id(2)]));
    sessions.mark_ended_here(0, &id(3));

    assert!(sessions.is_live((0, &id(1)), &records).await.unwrap(), "nobody says otherwise");
    assert!(sessions.is_live((0, &id(2)), &records).await.is_err(), "it was changed");
    assert!(!sessions.is_live((0, &id(3)), &records).await.unwrap(), "it has ended here");
    assert!(sessions.is_live((0, &id(4)), &records).await.is_err(), "nobody knows it");
    assert!(!sessions.is_live((0, "older"), &records).await.unwrap());
    assert_eq!(records.lookups.load(Ordering::Relaxed), 3, "not for each request");
}

#[tokio::test]
async fn a_known_session_waits_once_for_a_database_that_hangs() {
    let (sessions, records) = (LiveSessions::default(), stored([1, 2]));
    assert!(sessions.is_live((0, &id(1)), &records).await.unwrap());
    records.hangs.store(true, Ordering::Relaxed);
    records.doubts.store(1, Ordering::Relaxed);

    let began = Instant::now();
    for _ in 0..5 {
        assert!(sessions.is_live((0, &id(1)), &records).await.unwrap());
    }

    assert!(began.elapsed() < 2 * DOUBT_TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(records.lookups.load(Ordering::Relaxed), 2);
    records.hangs.store(false, Ordering::Relaxed);
    assert!(sessions.is_live((0, &id(2)), &records).await.unwrap(), "others are looked up");
}

#[tokio::test]
async fn a_node_that_sees_no_changes_looks_for_them() {
    let (sessions, records) = (LiveSessions::default(), stored([1]));
    assert!(sessions.is_live((0, &id(1)), &records).await.unwrap());
    records.is_blind.store(true, Ordering::Relaxed);
    records.ids.lock().unwrap().clear();

    tokio::time::sleep(Duration::from_millis(1010)).await;

    assert!(!sessions.is_live((0, &id(1)), &records).await.unwrap());
    assert_eq!(records.lookups.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn requests_are_stored_seldom() {
    let (sessions, records) = (LiveSessions::default(), stored([1, 2]));
    for number in [1, 2] {
        sessions.is_live((0, &id(number)), &records).await.unwrap();
    }
    sessions.record_request(&id(1), (1000, 4000, 4000));
    assert_eq!(sessions.due_activity(1199, false), []);
    assert_eq!(sessions.due_activity(1199, true).len(), 1);

    let due = sessions.due_activity(1200, false);
    let activity = LoginActivity { session_id: id(1), last_active: 1000, expires: 5000 };
    assert_eq!(due, [activity], "there need not be another request");
    sessions.activity_stored(&due);
    assert_eq!(sessions.due_activity(1300, true), []);

    sessions.record_request(&id(2), (901, 40, 40));
    assert_eq!(sessions.due_activity(930, false).len(), 1, "of a short session more often");
    sessions.due_activity(2000, false);
    assert!(sessions.lock_known().sessions.get(&key_of(&id(2)).unwrap()).is_none(), "it is over");
}

#[tokio::test]
async fn the_first_use_at_a_node_is_stored_where_what_is_stored_is_old() {
    let (sessions, records) = (LiveSessions::default(), stored([1]));
    let (day, now) = (24 * 60 * 60, STORED + 23 * 60 * 60);
    sessions.is_live((0, &id(1)), &records).await.unwrap();

    sessions.record_request(&id(1), (now, day, day));

    let activity = LoginActivity { session_id: id(1), last_active: now, expires: now + day };
    assert_eq!(sessions.due_activity(now + 1, false), [activity]);
}

#[test]
fn a_session_that_has_ended_here_stays_so_until_it_is_removed() {
    let sessions = LiveSessions::default();

    sessions.mark_ended_here(0, &id(1));
    sessions.forget_changed(Some(&[id(1)]));
    sessions.forget_changed(None);
    assert!(sessions.has_ended(&id(1)));
    assert_eq!(sessions.ended_here(), [id(1)]);

    sessions.mark_removed(&id(1));
    assert!(sessions.has_ended(&id(1)));
    assert_eq!(sessions.ended_here(), [""; 0]);
}

#[test]
fn what_is_still_to_be_removed_is_not_forgotten_for_others() {
    let sessions = LiveSessions::default();
    let key = |number| key_of(&id(number)).unwrap();
    sessions.lock_known().sessions = FairCache::new(32);
    sessions.mark_ended_here(0, &id(0));

    for number in 1..100 {
        sessions.lock_known().get_or_insert(0, key(number)).active = 1000 + number;
    }

    assert!(sessions.lock_known().sessions.get(&key(1)).is_none(), "there was no room");
    assert_eq!(sessions.ended_here(), [id(0)]);
}

#[test]
fn a_known_session_is_small() {
    assert!(size_of::<(SessionKey, u32, KnownSession)>() <= 72);
}
