//! Which bind has an endpoint, and which nodes hold a bind.
//!
//! An endpoint is claimed by its bind, so that two binds never have one, on whichever nodes they are. A bind
//! that the same agent has on several nodes is held by all of these. It stays held while the agent is away,
//! for as long as its node reserves the address, and after the end of its node until that node's row is
//! removed, which is as late.
//!
//! A claim whose bind nobody holds protects nothing: the agent has been away for too long, and whoever
//! asks for the endpoint gets it.

use super::node::NodeDocument;
use super::rows::EndpointKey;
use crate::service::store::{StoreError, Transaction, View};

/// Where endpoints are unique.
pub(super) const ENDPOINTS: &str = "online";
/// The role of a node for the binds that it holds.
pub(super) const HELD: &str = "held";

/// Claims an endpoint for a bind, which this node holds from now on; false when another bind that is held
/// has it.
pub(crate) fn hold(
    change: &Transaction<'_>,
    bind_id: &str,
    key: &EndpointKey,
    node_id: &str,
) -> Result<bool, StoreError> {
    if let Some(other) = change.claimant(ENDPOINTS, key.as_str())?.filter(|it| it != bind_id) {
        if !holders(change, &other)?.is_empty() {
            return Ok(false);
        }
        change.release(ENDPOINTS, &other)?;
    }
    // What it had before, under another address.
    change.release(ENDPOINTS, bind_id)?;
    change.claim(ENDPOINTS, key.as_str(), bind_id)?;
    let mut nodes = change.references(bind_id, HELD)?;
    if !nodes.iter().any(|node| node == node_id) {
        nodes.push(node_id.to_owned());
        change.link(bind_id, HELD, nodes.iter().map(String::as_str))?;
    }
    Ok(true)
}

/// Notes that a node holds a bind no more; true when none holds it now.
pub(crate) fn let_go(
    change: &Transaction<'_>,
    bind_id: &str,
    node_id: &str,
) -> Result<bool, StoreError> {
    let nodes = change.references(bind_id, HELD)?;
    let others = nodes.iter().filter(|node| *node != node_id).map(String::as_str);
    if nodes.iter().any(|node| node == node_id) {
        change.link(bind_id, HELD, others)?;
    }
    Ok(holders(change, bind_id)?.is_empty())
}

/// The nodes that hold a bind.
pub(crate) fn holders(view: &View<'_>, bind_id: &str) -> Result<Vec<String>, StoreError> {
    let mut nodes = view.references(bind_id, HELD)?;
    let mut failure = None;
    nodes.retain(|node| match view.find::<NodeDocument>(node) {
        Ok(found) => found.is_some(),
        Err(error) => {
            failure = Some(error);
            true
        }
    });
    failure.map_or(Ok(nodes), Err)
}

/// The binds that a node holds.
pub(super) fn held_by(view: &View<'_>, node_id: &str) -> Result<Vec<String>, StoreError> {
    view.referrers(node_id, HELD)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::service::store::Store;

    /// Stores two nodes, and does something.
    async fn changed<T: Send + 'static>(
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> T {
        let store = Store::open(None).unwrap();
        let changed = store.write(move |change| {
            for id in ["node_1", "node_2"] {
                change.put(&NodeDocument { id: id.to_owned(), ..NodeDocument::default() })?;
            }
            work(change)
        });
        changed.await.unwrap()
    }

    #[tokio::test]
    async fn an_endpoint_is_one_binds_on_all_nodes() {
        let holds = changed(|change| {
            let (name, port) = (EndpointKey::http("a.test", 443), EndpointKey::port(2000));
            Ok([
                hold(change, "one", &name, "node_1")?,
                hold(change, "two", &name, "node_2")?,
                hold(change, "two", &port, "node_2")?,
                hold(change, "one", &name, "node_2")?,
            ])
        });

        assert_eq!(holds.await, [true, false, true, true], "one bind may be on two nodes");
    }

    #[tokio::test]
    async fn an_endpoint_is_free_when_the_last_node_lets_go() {
        let holds = changed(|change| {
            let name = EndpointKey::http("a.test", 443);
            hold(change, "one", &name, "node_1")?;
            hold(change, "one", &name, "node_2")?;
            let first = let_go(change, "one", "node_1")?;
            let kept = hold(change, "two", &name, "node_1")?;
            let last = let_go(change, "one", "node_2")?;
            Ok([first, kept, last, hold(change, "two", &name, "node_1")?])
        });

        assert_eq!(holds.await, [false, false, true, true]);
    }

    #[tokio::test]
    async fn a_node_whose_row_is_removed_holds_nothing() {
        let holds = changed(|change| {
            let name = EndpointKey::http("a.test", 443);
            hold(change, "one", &name, "node_1")?;
            change.remove::<NodeDocument>("node_1")?;
            Ok([hold(change, "two", &name, "node_2")?, hold(change, "one", &name, "node_2")?])
        });

        assert_eq!(holds.await, [true, false], "and it is the other bind's then");
    }

    #[tokio::test]
    async fn a_bind_that_moves_gives_its_endpoint_up() {
        let holds = changed(|change| {
            let (old, new) = (EndpointKey::port(2000), EndpointKey::port(2001));
            hold(change, "one", &old, "node_1")?;
            hold(change, "one", &new, "node_1")?;
            Ok([hold(change, "two", &old, "node_2")?, hold(change, "two", &new, "node_2")?])
        });

        assert_eq!(holds.await, [true, false]);
    }
}
