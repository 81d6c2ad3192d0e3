//! What happens to the row of a node: each a change of the database that checks what it rests on.

use ginnel_api::id::{has_prefix, prefix};
use ginnel_store::{StoreResult, Transaction};

use super::holds::{self, HoldResult};
use super::node::{NodeDocument, NodeRecord, NodeState};
use super::rows::{ClaimRef, EndpointRow, RowOwner, SessionDocument, TunnelDocument};

/// Where names of nodes are unique.
pub(super) const NAMES: &str = "node_name";
/// The setting that has the newest epoch.
const EPOCH: &str = "cluster_epoch";
/// The role of a node for the rows of its sessions and tunnels.
pub(super) const ROWS: &str = "node";

/// Whether a node has got the name that it asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Joined {
    Done(NodeDocument),
    /// Another has it, who has not ended as far as the database knows.
    Taken(NodeDocument),
}

/// Adds a node, if no other has its name; one that is fenced or has stopped gives the name up.
pub(super) fn add_node(
    change: &Transaction<'_>,
    record: NodeRecord,
    process: String,
) -> StoreResult<Joined> {
    let node = NodeDocument {
        id: change.new_id(prefix::NODE)?,
        process,
        state: NodeState::default(),
        record: NodeRecord { epoch: next_epoch(change)?, started_at: change.now(), ..record },
    };
    if let Some(holder) = change.claimant(NAMES, &node.record.name)? {
        match change.find_document::<NodeDocument>(&holder)? {
            Some(other) if other.state.is_serving() => return Ok(Joined::Taken(other)),
            _ => change.release_claims(NAMES, &holder)?,
        }
    }
    change.claim_key(NAMES, &node.record.name, &node.id)?;
    change.put_document(&node)?;
    Ok(Joined::Done(node))
}

/// Counts the beat of a node up, with what it says of itself; false when its epoch is over.
pub(super) fn record_beat(
    change: &Transaction<'_>,
    owner: &RowOwner,
    said: NodeState,
) -> StoreResult<bool> {
    let Some(mut node) = find_serving(change, owner)? else { return Ok(false) };
    let NodeState { beat, draining, .. } = node.state;
    node.state = NodeState { beat: beat + 1, draining, ..said };
    change.put_document(&node)?;
    // A lease is far longer than others take to look, and notified of each beat, all of them would.
    change.defer_notice();
    Ok(true)
}

/// The node, if it has this epoch and nobody has said that it has ended.
pub(super) fn find_serving(
    change: &Transaction<'_>,
    owner: &RowOwner,
) -> StoreResult<Option<NodeDocument>> {
    let node = change.find_document::<NodeDocument>(&owner.node_id)?;
    Ok(node.filter(|node| node.record.epoch == owner.epoch && node.state.is_serving()))
}

/// Whether a node has this epoch and nobody has said that it has ended.
pub fn is_serving(change: &Transaction<'_>, owner: &RowOwner) -> StoreResult<bool> {
    Ok(find_serving(change, owner)?.is_some())
}

/// Gives a node a new epoch, which was fenced and lives; `node` is what it knows of itself.
pub(super) fn rejoin_node(
    change: &Transaction<'_>,
    node: NodeDocument,
) -> StoreResult<NodeDocument> {
    let stored = change.find_document::<NodeDocument>(&node.id)?;
    let beat = stored.map_or(0, |stored| stored.state.beat) + 1;
    let state = NodeState { beat, draining: node.state.draining, ..NodeState::default() };
    // A database that was restored may have lost the newest one.
    let epoch = next_epoch_after(change, node.record.epoch)?;
    let record = NodeRecord { epoch, ..node.record };
    // Where a process that began later has the name, the rows of this one are found by its identifier.
    change.claim_key(NAMES, &record.name, &node.id)?;
    let node = NodeDocument { state, record, ..node };
    change.put_document(&node)?;
    Ok(node)
}

/// Takes its epoch from a node, if it has not beaten since; false when it has.
pub(super) fn fence_node(
    change: &Transaction<'_>,
    owner: &RowOwner,
    beat: u64,
) -> StoreResult<bool> {
    let node = find_serving(change, owner)?.filter(|node| node.state.beat == beat);
    let Some(mut node) = node else { return Ok(false) };
    node.state.fenced = true;
    node.record.epoch = next_epoch(change)?;
    change.put_document(&node)?;
    Ok(true)
}

/// Notes that a node is about to stop; it serves what only it can serve.
pub(super) fn mark_draining(change: &Transaction<'_>, owner: &RowOwner) -> StoreResult<()> {
    if let Some(mut node) = find_serving(change, owner)? {
        node.state.draining = true;
        change.put_document(&node)?;
    }
    Ok(())
}

/// Notes that a node stops in order: its rows are void from now on.
pub(super) fn mark_stopped(change: &Transaction<'_>, owner: &RowOwner) -> StoreResult<()> {
    if let Some(mut node) = find_serving(change, owner)? {
        node.state.stopped = true;
        change.put_document(&node)?;
    }
    Ok(())
}

/// Stores the row of a session.
pub(super) fn put_session(change: &Transaction<'_>, session: &SessionDocument) -> StoreResult<()> {
    change.put_document(session)?;
    change.replace_references(&session.id, ROWS, [session.owner.node_id.as_str()])
}

/// Stores the row of a tunnel, if its bind has its endpoint, or gets it: visitors are led by it.
pub(super) fn put_tunnel(
    change: &Transaction<'_>,
    tunnel: &TunnelDocument,
) -> StoreResult<HoldResult> {
    let TunnelDocument { id, owner, bind_id, endpoint, .. } = tunnel;
    if let Some(EndpointRow { key, pool, .. }) = endpoint
        && !holds::is_held_by(change, bind_id, key, &owner.node_id)?
    {
        let claim = ClaimRef { key, pool: pool.as_deref() };
        match holds::hold_endpoint(change, bind_id, claim, owner)? {
            HoldResult::Done => {}
            refused => return Ok(refused),
        }
    }
    change.put_document(tunnel)?;
    change.replace_references(id, ROWS, [owner.node_id.as_str()])?;
    Ok(HoldResult::Done)
}

/// Removes the row of a session or a tunnel, if it is there.
pub(super) fn remove_row(change: &Transaction<'_>, id: &str) -> StoreResult<()> {
    match has_prefix(id, prefix::TUNNEL) {
        true => change.remove_document::<TunnelDocument>(id)?,
        false => change.remove_document::<SessionDocument>(id)?,
    };
    Ok(())
}

/// The rows of a node, of whichever epoch.
pub(super) fn rows_of(view: &ginnel_store::View<'_>, node_id: &str) -> StoreResult<Vec<String>> {
    view.referrers(node_id, ROWS)
}

/// An epoch that no node has had.
fn next_epoch(change: &Transaction<'_>) -> StoreResult<u64> {
    next_epoch_after(change, 0)
}

/// The same for who knows of one that there was.
fn next_epoch_after(change: &Transaction<'_>, known: u64) -> StoreResult<u64> {
    let last = change.find_setting(EPOCH)?.and_then(|text| text.parse::<u64>().ok());
    let next = last.unwrap_or_default().max(known) + 1;
    change.store_setting(EPOCH, &next.to_string())?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_store::{Store, View};

    fn record(name: &str) -> NodeRecord {
        NodeRecord { name: name.to_owned(), ..NodeRecord::default() }
    }

    fn owner(node: &NodeDocument) -> RowOwner {
        RowOwner { node_id: node.id.clone(), epoch: node.record.epoch }
    }

    async fn write<T: Send + 'static>(
        store: &Store,
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T> + Clone + Send + 'static,
    ) -> T {
        store.write(work).await.unwrap()
    }

    async fn joined(store: &Store, name: &'static str) -> Joined {
        write(store, move |change| add_node(change, record(name), String::new())).await
    }

    async fn node(store: &Store, name: &'static str) -> NodeDocument {
        match joined(store, name).await {
            Joined::Done(node) => node,
            Joined::Taken(other) => panic!("{other:?}"),
        }
    }

    fn found(store: &Store, node: &NodeDocument) -> Option<NodeDocument> {
        let find = |view: &View<'_>| view.find_document::<NodeDocument>(&node.id);
        store.read_blocking(find).unwrap()
    }

    #[tokio::test]
    async fn a_name_is_one_nodes_until_it_ends() {
        let store = Store::open(None).unwrap();
        let first = node(&store, "a").await;
        let other = node(&store, "b").await;
        assert_ne!(first.record.epoch, other.record.epoch, "no two nodes have one epoch");
        assert_eq!(joined(&store, "a").await, Joined::Taken(first.clone()));

        let stopping = owner(&first);
        write(&store, move |change| mark_stopped(change, &stopping)).await;

        let second = node(&store, "a").await;
        assert_ne!(second.id, first.id);
        let (name, old) = (second.id.clone(), first.id.clone());
        let claimed = move |view: &View<'_>| view.claimant(NAMES, "a");
        assert_eq!(store.read_blocking(claimed).unwrap(), Some(name));
        assert!(write(&store, move |change| change.remove_document::<NodeDocument>(&old)).await);
        assert!(
            matches!(joined(&store, "a").await, Joined::Taken(_)),
            "the name is not the old one's"
        );
    }

    #[tokio::test]
    async fn who_has_beaten_since_is_not_fenced() {
        let store = Store::open(None).unwrap();
        let node = node(&store, "a").await;
        let own = owner(&node);
        let beating = own.clone();
        assert!(
            write(&store, move |change| record_beat(change, &beating, NodeState::default())).await
        );

        let (late, right) = (own.clone(), own.clone());
        assert!(!write(&store, move |change| fence_node(change, &late, 0)).await);
        assert!(write(&store, move |change| fence_node(change, &right, 1)).await);

        let fenced = found(&store, &node).unwrap();
        assert!(fenced.state.fenced && fenced.record.epoch > node.record.epoch);
        let (again, over) = (own.clone(), own);
        assert!(!write(&store, move |change| fence_node(change, &again, 1)).await, "once");
        assert!(
            !write(&store, move |change| record_beat(change, &over, NodeState::default())).await
        );
    }

    #[tokio::test]
    async fn a_node_that_was_fenced_goes_on_in_a_new_epoch() {
        let store = Store::open(None).unwrap();
        let first = node(&store, "a").await;
        let own = owner(&first);
        write(&store, move |change| fence_node(change, &own, 0)).await;
        let fenced = found(&store, &first).unwrap();

        let itself = first.clone();
        let again = write(&store, move |change| rejoin_node(change, itself)).await;

        assert!(again.state.is_serving() && again.record.epoch > fenced.record.epoch);
        assert_eq!(found(&store, &first).unwrap(), again);
        assert_eq!((again.id, again.record.name), (first.id, first.record.name));
    }

    #[tokio::test]
    async fn a_node_whose_row_is_gone_comes_back() {
        let store = Store::open(None).unwrap();
        let first = node(&store, "a").await;
        let gone = first.id.clone();
        write(&store, move |change| change.remove_document::<NodeDocument>(&gone)).await;
        let other = node(&store, "a").await;

        let again = write(&store, move |change| rejoin_node(change, first)).await;

        assert!(again.record.epoch > other.record.epoch);
        assert!(matches!(joined(&store, "a").await, Joined::Taken(taken) if taken == other));
    }
}
