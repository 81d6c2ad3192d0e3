//! Which node delivers: one of a cluster, until it has ended.

use crate::service::cluster::{self, Cluster, RowOwner};
use crate::service::store::{Store, StoreError, Transaction, View};

/// The setting that names the node.
const DELIVERER: &str = "event_deliverer";

/// Whether a node delivers, as far as the database says; one that is alone always does.
pub(super) fn is_held(view: &View<'_>, own: Option<&RowOwner>) -> Result<bool, StoreError> {
    let Some(own) = own else { return Ok(true) };
    Ok(holder(view)?.as_ref() == Some(own))
}

/// Makes this node the one that delivers, unless another does; true when it is.
pub(super) async fn take(store: &Store, cluster: &Cluster) -> Result<bool, StoreError> {
    let own = cluster.owner();
    match store.read(holder).await? {
        Some(holder) if holder == own => return Ok(true),
        Some(holder) if cluster.directory.is_serving(&holder) => return Ok(false),
        _ => {}
    }
    let take = move |change: &Transaction<'_>| {
        if let Some(holder) = holder(change)?
            && holder != own
            && cluster::is_serving(change, &holder)?
        {
            return Ok(false);
        }
        change.set(DELIVERER, &serde_json::to_string(&own)?)?;
        Ok(true)
    };
    store.write(take).await
}

fn holder(view: &View<'_>) -> Result<Option<RowOwner>, StoreError> {
    let stored = view.setting(DELIVERER)?;
    Ok(stored.map(|stored| serde_json::from_str(&stored)).transpose()?)
}
