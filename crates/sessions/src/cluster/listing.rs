//! The sessions and tunnels of all nodes, as the database has them: what was answered is read on any node.

use std::collections::HashMap;

use serde::de::DeserializeOwned;

use ginnel_store::{Document, StoreResult, View};

use super::node::NodeDocument;
use super::rows::{RowOwner, SessionDocument, TunnelDocument};

/// How many nodes there may be.
const MAX_NODES: usize = 10_000;

/// A row that counts in one epoch of one node.
pub trait OwnedRow: Document + DeserializeOwned {
    /// Whose it is.
    fn owner(&self) -> &RowOwner;
}

impl OwnedRow for SessionDocument {
    fn owner(&self) -> &RowOwner {
        &self.owner
    }
}

impl OwnedRow for TunnelDocument {
    fn owner(&self) -> &RowOwner {
        &self.owner
    }
}

/// At most `limit` rows, newest first, after the identifier `before`; those of epochs that are over do not
/// count.
pub fn row_page<R: OwnedRow>(
    view: &View<'_>,
    before: Option<&str>,
    limit: usize,
) -> StoreResult<Vec<R>> {
    let epochs = serving_epochs(view)?;
    let mut found: Vec<R> = Vec::new();
    let mut before = before.map(str::to_owned);
    loop {
        let page = view.document_page::<R>(before.as_deref(), limit)?;
        let is_last = page.len() < limit;
        before = page.last().map(|row| row.id().to_owned());
        found.extend(page.into_iter().filter(|row| is_current(&epochs, row.owner())));
        if is_last || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// The row with this identifier, if its epoch is not over.
pub fn find_row<R: OwnedRow>(view: &View<'_>, id: &str) -> StoreResult<Option<R>> {
    let Some(row) = view.find_document::<R>(id)? else { return Ok(None) };
    let node = view.find_document::<NodeDocument>(&row.owner().node_id)?;
    let is_current =
        node.is_some_and(|node| node.record.epoch == row.owner().epoch && node.state.is_serving());
    Ok(Some(row).filter(|_| is_current))
}

/// The epochs of the nodes that nobody has said to have ended.
fn serving_epochs(view: &View<'_>) -> StoreResult<HashMap<String, u64>> {
    let nodes = view.document_page::<NodeDocument>(None, MAX_NODES)?;
    let serving = nodes.into_iter().filter(|node| node.state.is_serving());
    Ok(serving.map(|node| (node.id, node.record.epoch)).collect())
}

fn is_current(epochs: &HashMap<String, u64>, owner: &RowOwner) -> bool {
    epochs.get(&owner.node_id) == Some(&owner.epoch)
}
