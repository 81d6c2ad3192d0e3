//! Notes seldom when sessions were used, and removes what is over: on every node, at moments of its own, so that
//! the others find nothing left.

use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};

use ginnel_api::remote::application_users::ApplicationUser;
use ginnel_base::logging::or_debug;
use ginnel_base::random_fraction;
use ginnel_gateway::login::Logins;
use ginnel_store::{Store, StoreResult, Transaction};

use super::stored::{
    self, ENDED_LOGINS, SESSION_ENDS, SESSIONS_OF_USER, USER_ENDS, USER_RETENTION,
};

/// How often it is looked for what is to be done, about.
const INTERVAL: Duration = Duration::from_secs(30);
/// After how many failures the rest waits for the next time.
const MAX_FAILURES: usize = 3;
/// How many sessions are written at once.
const BATCH: usize = 200;
/// How long after its end something is removed, in seconds: the last requests of a session may be known to
/// another node alone for a while, and clocks of nodes may differ.
const REMOVAL_DELAY: i64 = 15 * 60;

/// Looks after sessions for as long as the store and the gateway are in use.
pub(super) async fn maintain_sessions(store: Weak<Store>, logins: Weak<Logins>) {
    loop {
        tokio::time::sleep(INTERVAL.mul_f64(0.5 + random_fraction())).await;
        let Some((store, logins)) = store.upgrade().zip(logins.upgrade()) else { return };
        or_debug!(store_activity(&store, &logins, false).await, "use of sessions is not stored");
        or_debug!(logins.remove_ended().await, "sessions that have ended here are still stored");
        or_debug!(remove_if_old(&store).await, "sessions that are over stay for now");
    }
}

/// Stores what is known here of sessions, before this node stops.
pub(crate) async fn flush_sessions(store: &Arc<Store>, logins: &Arc<Logins>) {
    or_debug!(store_activity(store, logins, true).await, "use of sessions is not stored");
    or_debug!(logins.remove_ended().await, "sessions that have ended here are still stored");
}

async fn store_activity(store: &Store, logins: &Logins, all: bool) -> StoreResult<()> {
    let (mut last, mut failures) = (Ok(()), 0);
    for batch in logins.due_activity(all).chunks(BATCH) {
        let written = batch.to_vec();
        let write = move |change: &Transaction<'_>| {
            change.defer_notice();
            change.for_each(&written, |it| stored::store_activity(change, it))
        };
        match store.write(write).await {
            Ok(()) => logins.activity_stored(batch),
            // What is wrong may be one session: the others are stored for that.
            Err(error) => {
                failures += 1;
                last = Err(error);
                if failures >= MAX_FAILURES {
                    break;
                }
            }
        }
    }
    last
}

/// Removes old records by the clock of the store, unless the clock has leapt.
async fn remove_if_old(store: &Store) -> StoreResult<()> {
    match store.age_time().await? {
        Some(now) => remove_old(store, DateTime::<Utc>::from(now).timestamp()).await,
        None => Ok(()),
    }
}

/// Removes sessions, ended logins and users that are over at a second of Unix.
async fn remove_old(store: &Store, now: i64) -> StoreResult<()> {
    let due = now - REMOVAL_DELAY;
    let remove_session = |change: &Transaction<'_>, key: &str| {
        let Some(id) = change.claimant(SESSION_ENDS, key)? else { return Ok(()) };
        change.release_claims(SESSION_ENDS, &id)?;
        stored::remove_session(change, &id)
    };
    let sessions = keys_before(store, SESSION_ENDS, due).await?;
    let sessions = store.change_each(sessions, remove_session).await;
    let forget_login =
        |change: &Transaction<'_>, key: &str| change.release_claims(ENDED_LOGINS, key);
    let attempts = keys_before(store, ENDED_LOGINS, due).await?;
    let attempts = store.change_each(attempts, forget_login).await;
    let remove_user = move |change: &Transaction<'_>, key: &str| {
        let Some(id) = change.claimant(USER_ENDS, key)? else { return Ok(()) };
        change.release_claims(USER_ENDS, &id)?;
        if change.referrers(&id, SESSIONS_OF_USER)?.is_empty() {
            return change.remove_document::<ApplicationUser>(&id).map(drop);
        }
        let later = stored::key_at(now.saturating_add(USER_RETENTION), &id);
        change.claim_own(USER_ENDS, &later, &id)
    };
    let users = keys_before(store, USER_ENDS, due).await?;
    let users = store.change_each(users, remove_user).await;
    // None of them stays because another one cannot go.
    sessions.and(attempts).and(users)
}

/// The keys of what was over before a second.
async fn keys_before(store: &Store, space: &'static str, second: i64) -> StoreResult<Vec<String>> {
    let end = stored::key_at(second, "");
    store.read(move |view| view.claimed_before(space, &end)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_api::remote::application_sessions::ApplicationSession;
    use ginnel_gateway::login::records::{LoginActivity, NewLoginSession};
    use ginnel_store::{StoreError, count_rounds};

    const NOW: i64 = 2_000_000_000;

    fn login(subject: &str, state: &str, expires: i64) -> NewLoginSession {
        NewLoginSession::of((subject, state), (NOW + 600, expires))
    }

    async fn create(store: &Store, new: NewLoginSession) -> Option<String> {
        store.write(move |change| stored::create_session(change, &new)).await.unwrap()
    }

    fn count(store: &Store) -> (usize, usize, i64) {
        let read = |view: &ginnel_store::View<'_>| {
            let sessions = view.all_documents::<ApplicationSession>()?.len();
            let ends = view.count_claims(SESSION_ENDS)? + view.count_claims(USER_ENDS)?;
            Ok::<_, StoreError>((
                sessions,
                view.all_documents::<ApplicationUser>()?.len(),
                ends + view.count_claims(ENDED_LOGINS)?,
            ))
        };
        store.read_blocking(read).unwrap()
    }

    #[tokio::test]
    async fn a_login_makes_one_session() {
        let store = Store::open(None).unwrap();

        let first = create(&store, login("ada", "state", NOW + 1000)).await;
        let again = create(&store, login("ada", "state", NOW + 1000)).await;
        let other = create(&store, login("ada", "other", NOW + 1000)).await;

        assert!(first.is_some() && other.is_some());
        assert_eq!(again, None);
        assert_eq!(count(&store), (2, 1, 5), "of one user");
    }

    #[test]
    fn a_login_takes_few_rounds_while_no_other_node_can_write() {
        let replaces = Some("as_before".to_owned());
        let new = NewLoginSession { replaces, ..login("ada", "state", NOW + 1000) };

        let taken = count_rounds(|change| stored::create_session(change, &new));

        assert!(taken.is_some_and(|taken| taken < 8), "{taken:?}");
    }

    #[tokio::test]
    async fn a_session_takes_the_place_of_another_one() {
        let store = Store::open(None).unwrap();
        let first = create(&store, login("ada", "one", NOW + 1000)).await;

        create(&store, NewLoginSession { replaces: first, ..login("bob", "two", NOW + 1000) })
            .await;

        let sessions =
            store.read_blocking(|view| view.all_documents::<ApplicationSession>()).unwrap();
        let users = store.read_blocking(|view| view.all_documents::<ApplicationUser>()).unwrap();
        let of: Vec<_> = sessions.iter().filter_map(|it| it.application_user.as_ref()).collect();
        assert_eq!(of.iter().map(|user| &user.id).collect::<Vec<_>>(), [&users[0].id]);
    }

    #[tokio::test]
    async fn what_is_over_goes_unless_it_was_used() {
        let store = Store::open(None).unwrap();
        create(&store, login("ada", "one", NOW + 1000)).await;
        let used = create(&store, login("bob", "two", NOW + 1000)).await.unwrap();
        let activity =
            LoginActivity { session_id: used, last_active: NOW + 900, expires: NOW + 9000 };
        let write = move |change: &Transaction<'_>| stored::store_activity(change, &activity);
        store.write(write).await.unwrap();

        remove_old(&store, NOW + 1000).await.unwrap();
        assert_eq!(count(&store), (2, 2, 6), "not at once");
        remove_old(&store, NOW + 1000 + REMOVAL_DELAY + 1).await.unwrap();
        assert_eq!(count(&store), (1, 2, 3), "and logins that have ended");
        remove_old(&store, NOW + 9000 + REMOVAL_DELAY + 1).await.unwrap();
        assert_eq!(count(&store), (0, 2, 2));
        remove_old(&store, NOW + 1000 + USER_RETENTION + REMOVAL_DELAY + 1).await.unwrap();
        assert_eq!(count(&store), (0, 0, 0), "users without sessions");
    }

    #[tokio::test]
    async fn an_issuer_with_a_slash_at_its_end_is_the_same() {
        let store = Store::open(None).unwrap();
        let provider_url = "https://issuer.example/".to_owned();
        let mut slash = NewLoginSession { provider_url, ..login("ada", "two", NOW + 1000) };
        slash.browser.user_agent = "\u{fffd}".repeat(512);
        create(&store, login("ada", "one", NOW + 1000)).await;
        create(&store, slash).await;

        assert_eq!(count(&store).1, 1);
        let sessions =
            store.read_blocking(|view| view.all_documents::<ApplicationSession>()).unwrap();
        let agent = sessions[0].browser_session.clone().unwrap().user_agent.unwrap();
        assert_eq!(agent.raw.unwrap().len(), 510, "what is stored of a text is bounded");
    }

    #[tokio::test]
    async fn a_user_has_a_bounded_number_of_sessions() {
        let store = Store::open(None).unwrap();
        let fill = |change: &Transaction<'_>| {
            for number in 0..1010 {
                stored::create_session(change, &login("ada", &number.to_string(), NOW + 1000))?;
            }
            Ok::<_, StoreError>(())
        };

        store.write(fill).await.unwrap();

        assert_eq!(count(&store).0, 1000);
    }

    #[tokio::test]
    async fn the_use_of_a_session_is_news_to_nobody() {
        let store = Store::open(None).unwrap();
        let id = create(&store, login("ada", "one", NOW + 1000)).await.unwrap();
        let is_notified = Arc::new(std::sync::atomic::AtomicBool::default());
        let watcher = is_notified.clone();
        store.watch_changes(move |changes| {
            watcher.fetch_or(changes.includes(&id), std::sync::atomic::Ordering::Relaxed);
        });
        let [session]: [ApplicationSession; 1] =
            store.read_blocking(|view| view.all_documents()).unwrap().try_into().unwrap();
        let activity = LoginActivity {
            session_id: session.id.clone(),
            last_active: NOW + 900,
            expires: NOW + 9000,
        };
        let write = move |change: &Transaction<'_>| stored::store_activity(change, &activity);
        store.write(write).await.unwrap();

        let after =
            store.read_blocking(|view| view.find_document::<ApplicationSession>(&session.id));
        assert_ne!(after.unwrap().unwrap().last_active, session.last_active);
        assert!(!is_notified.load(std::sync::atomic::Ordering::Relaxed));
    }
}
