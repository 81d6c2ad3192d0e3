//! Removes old events, a few at a time, so that changes do not wait for it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use ginnel_api::remote::audit_events::AuditEvent;
use ginnel_base::logging::or_debug;
use ginnel_store::{Store, StoreResult};

use super::{terms, to_micros};

/// How many events are removed in one commit.
const BATCH: usize = 200;
/// How long is waited between two of them.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked for old events, at most and at least.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(600);

/// Removes events that are older than this, for as long as the audit trail and the store are in use.
pub(super) fn start_pruning(store: &Arc<Store>, mut retention: watch::Receiver<Duration>) {
    let store = Arc::downgrade(store);
    ginnel_base::tasks::spawn(async move {
        loop {
            let interval = (*retention.borrow_and_update() / 10).clamp(MIN_INTERVAL, MAX_INTERVAL);
            // A shorter time than before is applied at once.
            let changed = timeout(interval, retention.changed()).await;
            if store.strong_count() == 0 || matches!(changed, Ok(Err(_))) {
                return;
            }
            let retention = *retention.borrow();
            or_debug!(prune_events(&store, retention).await, "old audit events stay");
        }
    });
}

async fn prune_events(store: &Weak<Store>, retention: Duration) -> StoreResult<()> {
    let Some(opened) = store.upgrade() else { return Ok(()) };
    let Some(now) = opened.age_time().await? else { return Ok(()) };
    drop(opened);
    let oldest = now.checked_sub(retention).map_or(0, to_micros);
    while let Some(store) = store.upgrade() {
        // Most of the time there is nothing to remove, which a read finds out without a commit.
        if !store.read(move |view| view.has_event_before(oldest)).await? {
            return Ok(());
        }
        store.write(move |change| change.prune_events(oldest, BATCH, terms_of)).await?;
        drop(store);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn terms_of(body: &str) -> Vec<String> {
    // What cannot be read was not written by a service, and has no terms that it could know.
    serde_json::from_str::<AuditEvent>(body).map_or(Vec::new(), |event| terms::event_terms(&event))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use ginnel_api::Origin;
    use ginnel_store::Transaction;

    #[tokio::test]
    async fn the_pause_survives_a_restart_until_an_operator_vouches_for_the_clock() {
        let store = Store::open(None).unwrap();
        let past = to_micros(SystemTime::now()) / 1_000_000 - 3 * 24 * 3600;
        let text = format!("{{\"at\": {past}, \"pause\": 0}}");
        let set = move |change: &Transaction<'_>| change.store_setting("age_clock", &text);
        store.write(set).await.unwrap();

        for _ in 0..2 {
            store.start_clock(Origin::default(), false).await.unwrap();
            assert_eq!(store.age_time().await.unwrap(), None);
            assert!(
                store
                    .age_clock()
                    .remaining_pause()
                    .is_some_and(|pause| pause.as_secs() > 23 * 3600)
            );
        }

        store.start_clock(Origin::default(), true).await.unwrap();
        assert!(store.age_time().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_confirmation_ends_the_pause_and_is_stored() {
        let store = Store::open(None).unwrap();
        let past = to_micros(SystemTime::now()) / 1_000_000 - 3 * 24 * 3600;
        let text = format!("{{\"at\": {past}, \"pause\": 0}}");
        let set = move |change: &Transaction<'_>| change.store_setting("age_clock", &text);
        store.write(set).await.unwrap();
        store.start_clock(Origin::default(), false).await.unwrap();

        let (_, ended) = store.confirm_clock().await.unwrap();

        assert!(ended.as_secs() > 23 * 3600);
        assert!(store.age_time().await.unwrap().is_some());
        store.start_clock(Origin::default(), false).await.unwrap();
        assert!(store.age_time().await.unwrap().is_some());
        let (_, ended) = store.confirm_clock().await.unwrap();
        assert!(ended.is_zero(), "there was no pause to end");
    }

    #[tokio::test]
    async fn a_confirmation_at_another_node_ends_the_pause() {
        let store = Store::open(None).unwrap();
        let past = to_micros(SystemTime::now()) / 1_000_000 - 3 * 24 * 3600;
        let set =
            |text: String| move |change: &Transaction<'_>| change.store_setting("age_clock", &text);
        store.write(set(format!("{{\"at\": {past}, \"pause\": 0}}"))).await.unwrap();
        store.start_clock(Origin::default(), false).await.unwrap();
        assert_eq!(store.age_time().await.unwrap(), None);

        let confirmed = format!("{{\"at\": {past}, \"pause\": 0, \"confirmations\": 1}}");
        store.write(set(confirmed)).await.unwrap();

        assert!(store.age_time().await.unwrap().is_some());
    }
}
