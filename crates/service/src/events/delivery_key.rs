//! The key of the mark by which gateways know requests that deliver events: one for all nodes.

use ginnel_api::Secret;
use ginnel_store::{Store, StoreResult, Transaction, View};

use super::secret::{key_of, new_secret};

/// The setting that holds it.
const KEY: &str = "event_delivery_key";

/// The key; made if there is none yet.
pub(super) async fn load_or_create(store: &Store) -> StoreResult<Vec<u8>> {
    if let Some(key) = store.read(load_stored).await? {
        return Ok(key);
    }
    let new = new_secret()?;
    let make = move |change: &Transaction<'_>| -> StoreResult<Vec<u8>> {
        if let Some(key) = load_stored(change)? {
            return Ok(key);
        }
        change.store_setting(KEY, &new.0)?;
        Ok(key_of(&new).unwrap_or_default())
    };
    store.write(make).await
}

fn load_stored(view: &View<'_>) -> StoreResult<Option<Vec<u8>>> {
    Ok(view.find_setting(KEY)?.and_then(|text| key_of(&Secret(text))))
}
