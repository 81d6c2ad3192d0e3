//! Work that one node of a cluster does at a time: it is leased to that node until the node has ended.
//!
//! The holder is stored as a [`RowOwner`], in a setting or with what the work is about. A node takes what
//! nobody holds, or a node that has ended; of two that try at once, the first to commit has it.

use std::sync::Arc;

use ginnel_store::{Store, StoreResult, Transaction, View};

use super::membership::is_serving;
use super::{Cluster, RowOwner};

/// The setting that names the node which delivers events.
pub const EVENT_DELIVERY: &str = "event_deliverer";

/// The leases of a node; it needs none where there is no cluster, and does all work.
#[derive(Clone)]
pub struct Leases(Option<Arc<Cluster>>);

impl Leases {
    pub fn from_cluster(cluster: Option<Arc<Cluster>>) -> Self {
        Self(cluster)
    }

    /// What this node is stored as where it holds a lease; none where there is no cluster.
    pub fn own_holder(&self) -> Option<RowOwner> {
        self.0.as_ref().map(|cluster| cluster.owner())
    }

    /// Whether another node holds a lease, as far as this one knows without a look at the database.
    pub fn is_elsewhere(&self, holder: Option<&RowOwner>) -> bool {
        let Some((cluster, holder)) = self.0.as_ref().zip(holder) else { return false };
        *holder != cluster.owner() && cluster.directory.is_serving(holder)
    }

    /// Gives this node the lease that is stored in a setting, unless another node holds it; true when this
    /// node has it.
    pub async fn take_lease(&self, store: &Store, setting: &'static str) -> StoreResult<bool> {
        let Some(own) = self.own_holder() else { return Ok(true) };
        let holder = store.read(move |view| lease_holder(view, setting)).await?;
        if holder.as_ref() == Some(&own) {
            return Ok(true);
        }
        if self.is_elsewhere(holder.as_ref()) {
            return Ok(false);
        }
        let take = move |change: &Transaction<'_>| {
            // One that others have fenced meanwhile must become a node again first.
            let is_free =
                !is_taken(change, self::lease_holder(change, setting)?.as_ref(), Some(&own))?;
            if !is_free || !is_serving(change, &own)? {
                return Ok(false);
            }
            change.store_setting(setting, &serde_json::to_string(&own)?)?;
            Ok(true)
        };
        store.write(take).await
    }
}

/// Whether a node other than `own` holds a lease, as the database has it.
pub fn is_taken(
    change: &Transaction<'_>,
    holder: Option<&RowOwner>,
    own: Option<&RowOwner>,
) -> StoreResult<bool> {
    match holder {
        Some(holder) if Some(holder) != own => is_serving(change, holder),
        _ => Ok(false),
    }
}

/// Whether `own` holds the lease that is stored in a setting; a node that is alone needs none.
pub fn is_held(view: &View<'_>, setting: &str, own: Option<&RowOwner>) -> StoreResult<bool> {
    let Some(own) = own else { return Ok(true) };
    Ok(lease_holder(view, setting)?.as_ref() == Some(own))
}

fn lease_holder(view: &View<'_>, setting: &str) -> StoreResult<Option<RowOwner>> {
    let stored = view.find_setting(setting)?;
    Ok(stored.map(|stored| serde_json::from_str(&stored)).transpose()?)
}
