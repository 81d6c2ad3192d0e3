//! Which bind has an endpoint, and which nodes hold a bind.
//!
//! An endpoint is claimed by its bind, so that two binds never have one, on whichever nodes they are. A bind
//! that the same agent has on several nodes is held by all of these. It stays held while the agent is away,
//! for as long as its node reserves the address, and after the end of its node until that node's row is
//! removed, which is as late.
//!
//! Binds of one account that share an endpoint are a pool, which has the claim in their place: it is held as
//! long as one of them is.
//!
//! A claim whose bind nobody holds protects nothing: the agent has been away for too long, and whoever
//! asks for the endpoint gets it.

use std::collections::HashSet;

use ginnel_store::{StoreResult, Transaction, View};

use super::membership;
use super::node::NodeDocument;
use super::rows::{ClaimRef, EndpointKey, RowOwner};

/// Where endpoints are unique.
pub(super) const ENDPOINTS: &str = "online";
/// The role of a node for the binds that it holds.
pub(super) const HELD: &str = "held";
/// The role of a pool for the binds that share its endpoint.
pub(super) const POOL: &str = "pool";

/// What has become of the wish of a node to hold a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldResult {
    Done,
    /// Another bind, which is held, has the endpoint.
    Taken,
    /// The epoch of the node is over: it holds nothing in it.
    Superseded,
}

/// Claims an endpoint for a bind, which the node holds from now on, if it still has this epoch.
pub fn hold_endpoint<'a>(
    change: &Transaction<'_>,
    bind_id: &str,
    claim: impl Into<ClaimRef<'a>>,
    owner: &RowOwner,
) -> StoreResult<HoldResult> {
    hold_claim(change, bind_id, claim.into(), owner)
}

fn hold_claim(
    change: &Transaction<'_>,
    bind_id: &str,
    claim: ClaimRef<'_>,
    owner: &RowOwner,
) -> StoreResult<HoldResult> {
    let (node_id, key, pool) = (&owner.node_id, claim.key, claim.pool_id());
    if membership::find_serving(change, owner)?.is_none() {
        return Ok(HoldResult::Superseded);
    }
    let claimant = pool.as_deref().unwrap_or(bind_id);
    if let Some(other) = change.claimant(ENDPOINTS, key.as_str())?.filter(|it| it != claimant) {
        if is_held(change, &other)? {
            return Ok(HoldResult::Taken);
        }
        change.release_claims(ENDPOINTS, &other)?;
    }
    // What it had before, under another address.
    change.release_claims(ENDPOINTS, bind_id)?;
    if change.references(bind_id, POOL)?.first() != pool.as_ref() {
        change.replace_references(bind_id, POOL, pool.as_deref())?;
    }
    change.claim_key(ENDPOINTS, key.as_str(), claimant)?;
    let mut nodes = change.references(bind_id, HELD)?;
    if !nodes.iter().any(|node| node == node_id) {
        nodes.push(node_id.clone());
        change.replace_references(bind_id, HELD, nodes.iter().map(String::as_str))?;
    }
    Ok(HoldResult::Done)
}

/// The bind that has an endpoint, or the pool of those that share it, where it is held.
pub fn claimant_at(view: &View<'_>, key: &EndpointKey) -> StoreResult<Option<String>> {
    match view.claimant(ENDPOINTS, key.as_str())? {
        Some(claimant) if is_held(view, &claimant)? => Ok(Some(claimant)),
        _ => Ok(None),
    }
}

/// Whether a node holds a bind, or any of the binds of a pool.
fn is_held(view: &View<'_>, claimant: &str) -> StoreResult<bool> {
    if !holding_nodes(view, claimant)?.is_empty() {
        return Ok(true);
    }
    for bind_id in view.referrers(claimant, POOL)? {
        if !holding_nodes(view, &bind_id)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a bind has an endpoint, and a node holds it.
pub(super) fn is_held_by(
    view: &View<'_>,
    bind_id: &str,
    key: &EndpointKey,
    node_id: &str,
) -> StoreResult<bool> {
    let Some(claimant) = view.claimant(ENDPOINTS, key.as_str())? else { return Ok(false) };
    let has_claim = claimant == bind_id || view.references(bind_id, POOL)?.contains(&claimant);
    Ok(has_claim && view.references(bind_id, HELD)?.iter().any(|node| node == node_id))
}

/// Notes that a node holds a bind no more; true when none holds it now.
pub fn release_hold(change: &Transaction<'_>, bind_id: &str, node_id: &str) -> StoreResult<bool> {
    let nodes = change.references(bind_id, HELD)?;
    let others = nodes.iter().filter(|node| *node != node_id).map(String::as_str);
    if nodes.iter().any(|node| node == node_id) {
        change.replace_references(bind_id, HELD, others)?;
    }
    if !holding_nodes(change, bind_id)?.is_empty() {
        return Ok(false);
    }
    for pool in change.references(bind_id, POOL)? {
        change.replace_references(bind_id, POOL, [])?;
        if !is_held(change, &pool)? {
            change.release_claims(ENDPOINTS, &pool)?;
        }
    }
    Ok(true)
}

/// The nodes that hold a bind.
pub fn holding_nodes(view: &View<'_>, bind_id: &str) -> StoreResult<Vec<String>> {
    let mut nodes = view.references(bind_id, HELD)?;
    let mut failure = None;
    nodes.retain(|node| match view.find_document::<NodeDocument>(node) {
        Ok(found) => found.is_some(),
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    failure.map_or(Ok(nodes), Err)
}

/// The binds that nodes hold.
pub fn all_held(view: &View<'_>) -> StoreResult<HashSet<String>> {
    let mut held = HashSet::new();
    view.for_each_document(|node: NodeDocument| {
        held.extend(held_by(view, &node.id)?);
        Ok(())
    })?;
    Ok(held)
}

/// The binds that a node holds.
pub(super) fn held_by(view: &View<'_>, node_id: &str) -> StoreResult<Vec<String>> {
    view.referrers(node_id, HELD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::rows::EndpointClaim;
    use ginnel_store::Store;

    /// Stores two nodes, and does something.
    async fn changed<T: Send + 'static>(
        work: impl FnOnce(&Transaction<'_>) -> StoreResult<T> + Clone + Send + 'static,
    ) -> T {
        let store = Store::open(None).unwrap();
        let changed = store.write(move |change| {
            for id in ["node_1", "node_2"] {
                change
                    .put_document(&NodeDocument { id: id.to_owned(), ..NodeDocument::default() })?;
            }
            work(change)
        });
        changed.await.unwrap()
    }

    fn owner(node_id: &str) -> RowOwner {
        RowOwner { node_id: node_id.to_owned(), epoch: 0 }
    }

    /// True when the node holds the bind then.
    fn holds(
        change: &Transaction<'_>,
        bind_id: &str,
        key: &EndpointKey,
        node_id: &str,
    ) -> StoreResult<bool> {
        Ok(hold_endpoint(change, bind_id, key, &owner(node_id))? == HoldResult::Done)
    }

    #[tokio::test]
    async fn an_endpoint_is_one_binds_on_all_nodes() {
        let held = changed(|change| {
            let (name, port) = (EndpointKey::http("a.test", 443), EndpointKey::port(2000));
            Ok([
                holds(change, "one", &name, "node_1")?,
                holds(change, "two", &name, "node_2")?,
                holds(change, "two", &port, "node_2")?,
                holds(change, "one", &name, "node_2")?,
            ])
        });

        assert_eq!(held.await, [true, false, true, true], "one bind may be on two nodes");
    }

    #[tokio::test]
    async fn an_endpoint_is_free_when_the_last_node_lets_go() {
        let held = changed(|change| {
            let name = EndpointKey::http("a.test", 443);
            holds(change, "one", &name, "node_1")?;
            holds(change, "one", &name, "node_2")?;
            let first = release_hold(change, "one", "node_1")?;
            let kept = holds(change, "two", &name, "node_1")?;
            let last = release_hold(change, "one", "node_2")?;
            Ok([first, kept, last, holds(change, "two", &name, "node_1")?])
        });

        assert_eq!(held.await, [false, false, true, true]);
    }

    #[tokio::test]
    async fn a_node_whose_row_is_removed_holds_nothing() {
        let held = changed(|change| {
            let name = EndpointKey::http("a.test", 443);
            holds(change, "one", &name, "node_1")?;
            change.remove_document::<NodeDocument>("node_1")?;
            Ok([holds(change, "two", &name, "node_2")?, holds(change, "one", &name, "node_2")?])
        });

        assert_eq!(held.await, [true, false], "and it is the other bind's then");
    }

    #[tokio::test]
    async fn binds_of_one_account_may_share_an_endpoint() {
        let held = changed(|change| {
            let key = EndpointKey::http("a.test", 443);
            let shared = |account: &str| EndpointClaim {
                key: EndpointKey::http("a.test", 443),
                pool: Some(account.to_owned()),
            };
            let holds = |bind_id: &str, claim: &EndpointClaim, node_id: &str| {
                hold_endpoint(change, bind_id, claim, &owner(node_id))
            };
            let joined = [
                holds("one", &shared("usr_1"), "node_1")?,
                holds("two", &shared("usr_1"), "node_2")?,
                holds("three", &shared("usr_2"), "node_2")?,
                holds("four", &EndpointClaim::from(key.clone()), "node_2")?,
            ];
            release_hold(change, "one", "node_1")?;
            let while_one_is_left = holds("four", &EndpointClaim::from(key.clone()), "node_2")?;
            release_hold(change, "two", "node_2")?;
            let claimant = claimant_at(change, &key)?;
            Ok((joined, while_one_is_left, claimant, holds("four", &key.into(), "node_2")?))
        });

        let (joined, while_one_is_left, claimant, last) = held.await;
        use HoldResult::{Done, Taken};
        assert_eq!(joined, [Done, Done, Taken, Taken]);
        assert_eq!((while_one_is_left, claimant, last), (Taken, None, Done));
    }

    #[tokio::test]
    async fn a_bind_that_moves_gives_its_endpoint_up() {
        let held = changed(|change| {
            let (old, new) = (EndpointKey::port(2000), EndpointKey::port(2001));
            holds(change, "one", &old, "node_1")?;
            holds(change, "one", &new, "node_1")?;
            Ok([holds(change, "two", &old, "node_2")?, holds(change, "two", &new, "node_2")?])
        });

        assert_eq!(held.await, [true, false]);
    }

    #[tokio::test]
    async fn a_node_whose_epoch_is_over_holds_nothing_in_it() {
        let held = changed(|change| {
            let key = EndpointKey::http("a.test", 443);
            membership::fence_node(change, &owner("node_1"), 0)?;
            let late = hold_endpoint(change, "one", &key, &owner("node_1"))?;
            Ok((
                late,
                claimant_at(change, &key)?,
                hold_endpoint(change, "two", &key, &owner("node_2"))?,
            ))
        });

        assert_eq!(held.await, (HoldResult::Superseded, None, HoldResult::Done));
    }
}
