//! Stores what a node announces.

use ginnel_store::{StoreError, StoreResult, Transaction};

use super::announcements::RowChange;
use super::holds::{self, HoldResult};
use super::rows::RowOwner;
use super::{cleaning, membership};
use crate::agents::Reservation;

/// Why rows were not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnnounceError {
    #[error("the epoch of this node is over")]
    Superseded,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stores rows; gives the binds whose endpoints are another's.
pub(super) fn store_rows(
    change: &Transaction<'_>,
    rows: &[RowChange],
    owner: &RowOwner,
) -> Result<Vec<String>, AnnounceError> {
    if membership::find_serving(change, owner)?.is_none() {
        return Err(AnnounceError::Superseded);
    }
    let (mut lost, mut is_superseded) = (Vec::new(), false);
    change.for_each(rows, |row| {
        match apply_change(change, row, owner)? {
            HoldResult::Done => {}
            HoldResult::Superseded => is_superseded = true,
            HoldResult::Taken => lost.extend(bind_of(row).map(str::to_owned)),
        }
        Ok(())
    })?;
    lost.sort();
    lost.dedup();
    if is_superseded { Err(AnnounceError::Superseded) } else { Ok(lost) }
}

/// The bind that a row needs.
fn bind_of(row: &RowChange) -> Option<&str> {
    match row {
        RowChange::Hold { bind_id, .. } => Some(bind_id),
        RowChange::Tunnel(tunnel) => Some(&tunnel.bind_id),
        RowChange::Session(_) | RowChange::Remove(_) | RowChange::LetGo { .. } => None,
    }
}

/// Makes a change of a row.
fn apply_change(
    change: &Transaction<'_>,
    row: &RowChange,
    owner: &RowOwner,
) -> StoreResult<HoldResult> {
    match row {
        RowChange::Session(session) => membership::put_session(change, session)?,
        RowChange::Tunnel(tunnel) => return membership::put_tunnel(change, tunnel),
        RowChange::Remove(id) => membership::remove_row(change, id)?,
        RowChange::Hold { bind_id, claim } => {
            return holds::hold_endpoint(change, bind_id, claim, owner);
        }
        RowChange::LetGo { bind_id, waits: true } => {
            cleaning::release_bind(change, bind_id, &owner.node_id)?;
        }
        RowChange::LetGo { bind_id, waits: false } => {
            if holds::release_hold(change, bind_id, &owner.node_id)? {
                change.remove_document::<Reservation>(bind_id)?;
            }
        }
    }
    Ok(HoldResult::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node::NodeDocument;
    use crate::cluster::rows::{EndpointKey, EndpointRow, TunnelDocument};
    use ginnel_store::Store;

    fn owner(node_id: &str) -> RowOwner {
        RowOwner { node_id: node_id.to_owned(), epoch: 0 }
    }

    fn key() -> EndpointKey {
        EndpointKey::http("a.test", 443)
    }

    fn hold(bind_id: &str) -> RowChange {
        RowChange::Hold { bind_id: bind_id.to_owned(), claim: key().into() }
    }

    fn tunnel(bind_id: &str) -> RowChange {
        RowChange::Tunnel(Box::new(TunnelDocument {
            id: format!("tn_{bind_id}"),
            owner: owner("node_1"),
            bind_id: bind_id.to_owned(),
            endpoint: Some(EndpointRow { key: key(), ..EndpointRow::default() }),
            ..TunnelDocument::default()
        }))
    }

    /// A store with two nodes, of which the second holds what is said, and what the first stores then:
    /// the binds that it has lost.
    async fn stored(held: Option<&str>, rows: &[RowChange]) -> (Store, Vec<String>) {
        let store = Store::open(None).unwrap();
        let (held, rows) = (held.map(str::to_owned), rows.to_vec());
        let lost = store.write(move |change| {
            for id in ["node_1", "node_2"] {
                change
                    .put_document(&NodeDocument { id: id.to_owned(), ..NodeDocument::default() })?;
            }
            if let Some(bind_id) = &held {
                holds::hold_endpoint(change, bind_id, &key(), &owner("node_2"))?;
            }
            super::store_rows(change, &rows, &owner("node_1"))
        });
        let lost = lost.await.unwrap();
        (store, lost)
    }

    fn is_stored(store: &Store, bind_id: &str) -> bool {
        let id = format!("tn_{bind_id}");
        store.read_blocking(|view| view.find_document::<TunnelDocument>(&id)).unwrap().is_some()
    }

    #[tokio::test]
    async fn a_tunnel_whose_endpoint_is_another_binds_is_not_announced() {
        for rows in [vec![hold("one"), tunnel("one")], vec![tunnel("one")]] {
            let (store, lost) = stored(Some("two"), &rows).await;

            assert_eq!(lost, ["one"]);
            assert!(!is_stored(&store, "one"), "two binds would have the name");
        }
    }

    #[tokio::test]
    async fn a_tunnel_is_announced_with_an_endpoint_that_is_its_own_or_nobodys() {
        for held in [None, Some("one")] {
            let (store, lost) = stored(held, &[tunnel("one")]).await;

            assert_eq!(lost, [""; 0]);
            assert!(is_stored(&store, "one"));
            let at = store.read_blocking(|view| holds::claimant_at(view, &key())).unwrap();
            assert_eq!(at.as_deref(), Some("one"));
        }
    }

    #[tokio::test]
    async fn a_bind_that_is_let_go_keeps_its_reservation_where_its_agent_may_come_back() {
        for waits in [true, false] {
            let let_go = RowChange::LetGo { bind_id: "one".to_owned(), waits };
            let (store, _) = stored(None, &[hold("one")]).await;
            let let_go = store.write(move |change| {
                change.put_document(&Reservation {
                    id: "one".to_owned(),
                    ..Reservation::default()
                })?;
                super::store_rows(change, &[let_go], &owner("node_1"))
            });
            let_go.await.unwrap();

            let kept =
                store.read_blocking(|view| view.find_document::<Reservation>("one")).unwrap();
            assert_eq!(kept.map(|kept| kept.idle.is_some()), waits.then_some(true));
            let at = store.read_blocking(|view| holds::claimant_at(view, &key())).unwrap();
            assert_eq!(at, None, "others may have it");
        }
    }
}
