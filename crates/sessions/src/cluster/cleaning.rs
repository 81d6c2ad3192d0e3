//! Removes what is left of nodes that have ended: their rows, their holds on addresses, and themselves.
//!
//! All of that is void from the moment a node is fenced, so there is no haste; until its row is removed the
//! addresses of its agents wait for them.

use std::sync::Arc;
use std::time::Duration;

use ginnel_store::{Store, StoreError, StoreResult, Transaction};

use super::announcements::Announcements;
use super::directory::KnownNode;
use super::node::NodeDocument;
use super::{holds, membership};
use crate::agents::Reservation;

/// How long the addresses of a node that has ended wait for its agents.
pub(super) const RESERVATION: Duration = Duration::from_secs(30);

/// Removes a node that has ended, with all that it has left; nothing if it has begun again.
pub(super) async fn remove_node(store: &Arc<Store>, node: &KnownNode) -> StoreResult<()> {
    let (id, epoch) = (node.id.to_string(), node.record.epoch);
    let has_ended = move |change: &Transaction<'_>| {
        let stored = change.find_document::<NodeDocument>(&id)?;
        Ok::<_, StoreError>(
            stored.is_some_and(|it| it.record.epoch == epoch && !it.state.is_serving()),
        )
    };
    let id = node.id.to_string();
    let (rows, binds) = rows_and_binds(store, &id).await?;
    let check = has_ended.clone();
    store
        .change_each(rows, move |change, row| match check(change)? {
            true => membership::remove_row(change, row),
            false => Ok(()),
        })
        .await?;
    let (check, holder) = (has_ended.clone(), id.clone());
    store
        .change_each(binds, move |change, bind_id| match check(change)? {
            true => release_bind(change, bind_id, &holder),
            false => Ok(()),
        })
        .await?;
    let remove = move |change: &Transaction<'_>| match has_ended(change)? {
        true => change.remove_document::<NodeDocument>(&id),
        false => Ok(false),
    };
    let removed = store.write(remove).await?;
    tracing::info!(node = node.record.name, removed, "what a node has left is removed");
    Ok(())
}

/// Removes the rows of a node that stops.
pub(super) async fn remove_rows(store: &Arc<Store>, node_id: &str) {
    let removed = async {
        let (rows, _) = rows_and_binds(store, node_id).await?;
        store.change_each(rows, membership::remove_row).await
    };
    if let Err(err) = removed.await {
        tracing::debug!(%err, "the rows of this node are left to others");
    }
}

/// Removes what a database that was restored has of this node, and what this node knows to be over.
pub(super) async fn remove_unknown(
    store: &Arc<Store>,
    known: &Arc<Announcements>,
) -> StoreResult<()> {
    let owner = known.owner();
    let (rows, binds) = rows_and_binds(store, &owner.node_id).await?;
    let (check, has) = (owner.clone(), known.clone());
    store
        .change_each(rows, move |change, row| {
            match !has.has_row(row) && membership::is_serving(change, &check)? {
                true => membership::remove_row(change, row),
                false => Ok(()),
            }
        })
        .await?;
    // Asked when it is written: an agent may have come back for its bind meanwhile.
    let has = known.clone();
    store
        .change_each(binds, move |change, bind_id| {
            match !has.has_bind(bind_id) && membership::is_serving(change, &owner)? {
                true => release_bind(change, bind_id, &owner.node_id),
                false => Ok(()),
            }
        })
        .await
}

/// The rows and the binds of a node.
async fn rows_and_binds(store: &Store, node_id: &str) -> StoreResult<(Vec<String>, Vec<String>)> {
    let id = node_id.to_owned();
    let read = move |view: &ginnel_store::View<'_>| {
        Ok((membership::rows_of(view, &id)?, holds::held_by(view, &id)?))
    };
    store.read(read).await
}

/// Gives up a node's hold on a bind, whose address waits for its agent where no other node has it.
pub(super) fn release_bind(
    change: &Transaction<'_>,
    bind_id: &str,
    node_id: &str,
) -> StoreResult<()> {
    if !holds::release_hold(change, bind_id, node_id)? {
        return Ok(());
    }
    match change.find_document::<Reservation>(bind_id)? {
        Some(kept) if kept.idle.is_none() => {
            change.put_document(&Reservation { idle: Some(change.now()), ..kept })
        }
        _ => Ok(()),
    }
}
