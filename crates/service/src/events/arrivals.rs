//! Wakes who delivers to a destination when an event is stored for it, and nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use ginnel_store::{Changes, waiting_destination};

/// Who waits for events, by the destination.
#[derive(Default)]
pub(super) struct ArrivalTable(Mutex<HashMap<String, Weak<Notify>>>);

/// The events that are stored for one destination.
pub(super) struct Arrivals(Arc<Notify>);

impl ArrivalTable {
    /// Those of one destination, from now on.
    pub fn for_destination(&self, destination_id: &str) -> Arrivals {
        let notify = Arc::new(Notify::new());
        let mut table = self.lock_table();
        table.retain(|_, waiting| waiting.strong_count() > 0);
        table.insert(destination_id.to_owned(), Arc::downgrade(&notify));
        Arrivals(notify)
    }

    /// Wakes those for whom there may be events.
    pub fn wake_changed(&self, changes: &Changes) {
        let table = self.lock_table();
        for (destination_id, waiting) in table.iter() {
            if changes.includes(&waiting_destination(destination_id))
                && let Some(waiting) = waiting.upgrade()
            {
                waiting.notify_one();
            }
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, HashMap<String, Weak<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrivals {
    /// Waits for the next; one since the last call is remembered.
    pub async fn next(&self) {
        self.0.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn is_woken(arrivals: &Arrivals) -> bool {
        timeout(Duration::from_millis(1), arrivals.next()).await.is_ok()
    }

    #[tokio::test]
    async fn an_event_wakes_its_destination_alone() {
        let table = ArrivalTable::default();
        let (one, other) = (table.for_destination("ed_1"), table.for_destination("ed_2"));

        table.wake_changed(&Changes::Of(vec![waiting_destination("ed_1"), "ed_2".to_owned()]));

        assert!(is_woken(&one).await && !is_woken(&one).await);
        assert!(!is_woken(&other).await);
        table.wake_changed(&Changes::All);
        assert!(is_woken(&one).await && is_woken(&other).await);
    }
}
