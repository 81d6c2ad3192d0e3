//! Who subscribes to what, as nodes have it in memory.
//!
//! Each change of a resource needs it, so it is not read for each: a setting has a new value with every
//! change of a subscription. A change reads that one setting, together with what it reads anyway, and the
//! rest only when it is another than before, of the types alone that it is about: there are many types, and
//! on PostgreSQL other nodes wait meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use ginnel_api::id::prefix;
use ginnel_store::{StoreResult, Transaction, View};

/// The role of a destination for the subscriptions that name it.
pub(crate) const DESTINATION: &str = "event_destination";
/// The role of a type of events for the subscriptions that have it.
pub(crate) const EVENT_TYPE: &str = "event_type";
/// The setting with what is never the same for other subscriptions.
const VERSION: &str = "event_subscriptions_version";

/// The destinations that get an event.
pub(super) type Receivers = BTreeSet<String>;

/// Notes that a subscription was made, has changed or is gone.
pub(crate) fn bump_subscription_version(change: &Transaction<'_>) -> StoreResult<()> {
    change.store_setting(VERSION, &change.new_id(prefix::EVENT)?)
}

/// The receivers of types of events, as they were at a version.
struct ReceiverTable {
    version: Option<String>,
    /// Of the types that were asked for.
    by_type: Mutex<HashMap<String, Arc<Receivers>>>,
}

impl ReceiverTable {
    fn by_type(&self) -> MutexGuard<'_, HashMap<String, Arc<Receivers>>> {
        self.by_type.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who subscribes to what, as far as this node has read it.
#[derive(Default)]
pub(super) struct KnownSubscriptions(ArcSwapOption<ReceiverTable>);

/// The receivers of events at the end of a change.
pub(super) struct CurrentReceivers(Arc<ReceiverTable>);

impl KnownSubscriptions {
    /// Looks up what [`KnownSubscriptions::read_receivers`] needs in most cases.
    pub fn prefetch_version(change: &Transaction<'_>) -> StoreResult<()> {
        change.find_setting(VERSION).map(drop)
    }

    /// The receivers of types of events, with what the change itself has made of them.
    pub fn read_receivers(
        &self,
        change: &Transaction<'_>,
        types: &BTreeSet<&str>,
    ) -> StoreResult<CurrentReceivers> {
        let version = change.find_setting(VERSION)?;
        let known = self.0.load_full().filter(|known| known.version == version);
        let table = known.unwrap_or_else(|| {
            let table = Arc::new(ReceiverTable { version, by_type: Mutex::default() });
            // Nobody else will ever find this version if the change is not kept.
            self.0.store(Some(table.clone()));
            table
        });
        let unread: Vec<_> =
            types.iter().copied().filter(|name| !table.by_type().contains_key(*name)).collect();
        change.for_each(&unread, |name| {
            let of_type = Arc::new(find_receivers(change, name)?);
            table.by_type().insert((*name).to_owned(), of_type);
            Ok(())
        })?;
        Ok(CurrentReceivers(table))
    }

    /// Has it be read again: a node of an older version changes subscriptions without a new version.
    pub fn forget(&self) {
        self.0.store(None);
    }
}

impl CurrentReceivers {
    /// The destinations of a type of events, if there are any.
    pub fn for_type(&self, event_type: &str) -> Option<Arc<Receivers>> {
        let of_type = self.0.by_type().get(event_type).cloned();
        of_type.filter(|receivers| !receivers.is_empty())
    }
}

/// The destinations of a type of events.
pub(super) fn find_receivers(view: &View<'_>, event_type: &str) -> StoreResult<Receivers> {
    view.references_of_referrers(event_type, EVENT_TYPE, DESTINATION)
}

#[cfg(test)]
mod tests {
    use super::super::types::{HTTP_REQUEST_COMPLETE, TCP_CONNECTION_CLOSED};
    use super::*;
    use ginnel_store::{Store, StoreError};

    async fn subscribe(store: &Arc<Store>, event_type: &'static str) {
        let change = move |change: &Transaction<'_>| -> StoreResult<()> {
            change.replace_references("es_1", EVENT_TYPE, [event_type])?;
            change.replace_references("es_1", DESTINATION, ["ed_1"])?;
            bump_subscription_version(change)
        };
        store.write(change).await.unwrap();
    }

    /// Which types have a receiver, as a node finds that knows what it has read before.
    async fn subscribed(store: &Arc<Store>, node: &Arc<KnownSubscriptions>) -> Vec<&'static str> {
        let node = node.clone();
        let all = [HTTP_REQUEST_COMPLETE, TCP_CONNECTION_CLOSED];
        let read =
            move |change: &Transaction<'_>| node.read_receivers(change, &BTreeSet::from(all));
        let receivers = store.write(read).await.unwrap();
        all.into_iter().filter(|name| receivers.for_type(name).is_some()).collect()
    }

    #[tokio::test]
    async fn a_node_knows_at_its_next_change_who_has_subscribed_at_another() {
        let store = Arc::new(Store::open(None).unwrap());
        let nodes = [Arc::<KnownSubscriptions>::default(), Arc::default()];
        for node in &nodes {
            assert_eq!(subscribed(&store, node).await, [""; 0]);
        }

        for event_type in [HTTP_REQUEST_COMPLETE, TCP_CONNECTION_CLOSED] {
            subscribe(&store, event_type).await;
            for node in &nodes {
                assert_eq!(subscribed(&store, node).await, [event_type]);
            }
        }
    }

    #[tokio::test]
    async fn what_a_refused_change_has_subscribed_is_not_remembered() {
        let store = Arc::new(Store::open(None).unwrap());
        let node = Arc::<KnownSubscriptions>::default();
        let shared = node.clone();
        let refused = move |change: &Transaction<'_>| -> StoreResult<()> {
            change.replace_references("es_1", EVENT_TYPE, [HTTP_REQUEST_COMPLETE])?;
            change.replace_references("es_1", DESTINATION, ["ed_1"])?;
            bump_subscription_version(change)?;
            let receivers =
                shared.read_receivers(change, &BTreeSet::from([HTTP_REQUEST_COMPLETE]))?;
            assert!(receivers.for_type(HTTP_REQUEST_COMPLETE).is_some());
            Err(StoreError::Closed)
        };

        assert!(store.write(refused).await.is_err());

        assert_eq!(subscribed(&store, &node).await, [""; 0]);
    }
}
