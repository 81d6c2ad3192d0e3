//! Addresses that agents had, kept over a restart of the service.
//!
//! While the service runs, an address waits as long as its options say. One that nobody came back for
//! after a restart waits for days, as long as its account has not too many of them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use chrono::DateTime;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use ginnel_api::Timestamp;
use ginnel_api::id::{has_prefix, prefix};
use ginnel_gateway::{EndpointSpec, PublicEndpoint};
use ginnel_store::{Document, Store, StoreError, StoreResult, Transaction, View};

use crate::accounts;
use crate::cluster::{EndpointClaim, HoldResult, RowOwner, all_held, hold_endpoint, holding_nodes};

/// How long an address waits for an agent that was gone when the service started.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many such addresses an account has; those that wait longest are given up first.
const MAX_RESERVATIONS: usize = 1000;
/// What a reservation is to the credential whose agent had the address.
const ROLE: &str = "credential";

/// The address of a bind, for the agent that had it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Reservation {
    /// The identifier of the bind.
    pub id: String,
    /// The digest of the bind's token.
    pub token: Vec<u8>,
    /// The account that may have it again.
    pub owner_id: String,
    /// The host name, where it has one.
    pub host: Option<String>,
    /// Where it listened, where it has a port of its own.
    pub addr: Option<String>,
    /// Since when nobody has been seen to serve it; none while somebody does.
    #[serde(default)]
    pub idle: Option<Timestamp>,
}

/// The reservation of a bind, for an agent that shows its identifier and a token.
pub enum FoundReservation {
    /// The agent may have the address again.
    Own(Reservation),
    /// Another session of the account has taken the address over.
    TakenOver(Reservation),
    /// The account has no such reservation.
    Unknown,
}

impl Document for Reservation {
    const PREFIX: &'static str = "bind";

    fn id(&self) -> &str {
        &self.id
    }
}

impl Reservation {
    /// What to keep of an endpoint.
    pub fn for_endpoint(id: &str, token: &str, owner_id: &str, endpoint: &PublicEndpoint) -> Self {
        Self {
            id: id.to_owned(),
            token: hash_token(token),
            owner_id: owner_id.to_owned(),
            host: endpoint.host().map(str::to_owned),
            addr: endpoint.address().map(|address| address.to_string()),
            idle: None,
        }
    }

    /// Finds the reservation of a bind that an agent had.
    pub async fn find(
        store: &Store,
        id: &str,
        token: &str,
        owner_id: &str,
    ) -> StoreResult<FoundReservation> {
        let id = id.to_owned();
        let found = store.read(move |view| view.find_document::<Self>(&id)).await?;
        Ok(match found.filter(|kept| kept.owner_id == owner_id) {
            Some(kept) if kept.is_for(token) => FoundReservation::Own(kept),
            Some(kept) => FoundReservation::TakenOver(kept),
            None => FoundReservation::Unknown,
        })
    }

    /// The host or the socket address.
    pub fn address_text(&self) -> &str {
        self.host.as_deref().or(self.addr.as_deref()).unwrap_or_default()
    }

    /// Asks for the same address again.
    pub fn apply_to_spec(self, spec: &mut EndpointSpec) {
        spec.host = self.host.or(spec.host.take());
        spec.addr = self.addr.or(spec.addr.take());
    }

    fn is_for(&self, token: &str) -> bool {
        self.token.ct_eq(&hash_token(token)).into()
    }

    /// Writes it down for the agents of a credential.
    pub async fn store_for_credential(self, store: &Store, credential_id: &str) -> StoreResult<()> {
        let credential_id = credential_id.to_owned();
        let keep = move |change: &Transaction<'_>| {
            change.put_document(&self)?;
            change.replace_references(&self.id, ROLE, [credential_id.as_str()])
        };
        store.write(keep).await
    }

    /// As [`Reservation::store_for_credential`], in a cluster: the endpoint with this key is the bind's then, which this
    /// node holds, or nothing is written. `replaced` is the digest of the token that the bind had before, if a session
    /// takes the address over.
    pub async fn store_with_claim(
        self,
        store: &Store,
        credential_id: &str,
        claim: EndpointClaim,
        owner: RowOwner,
        replaced: Option<Vec<u8>>,
    ) -> StoreResult<HoldResult> {
        let credential_id = credential_id.to_owned();
        let keep = move |change: &Transaction<'_>| {
            // Two sessions may take an address over at the same time, on two nodes: only the first one gets it.
            let known = change.find_document::<Self>(&self.id)?.map(|kept| kept.token);
            if known.is_some_and(|known| known != self.token && Some(&known) != replaced.as_ref()) {
                return Ok(HoldResult::Taken);
            }
            let result = hold_endpoint(change, &self.id, &claim, &owner)?;
            if result == HoldResult::Done {
                change.put_document(&self)?;
                change.replace_references(&self.id, ROLE, [credential_id.as_str()])?;
            }
            Ok(result)
        };
        store.write(keep).await
    }

    /// Notes that the agents of another credential have the address now.
    pub async fn assign_credential(
        store: &Store,
        id: &str,
        credential_id: &str,
    ) -> StoreResult<()> {
        let (id, credential_id) = (id.to_owned(), credential_id.to_owned());
        let assign = move |change: &Transaction<'_>| match change.find_document::<Self>(&id)? {
            Some(_) => change.replace_references(&id, ROLE, [credential_id.as_str()]),
            None => Ok(()),
        };
        store.write(assign).await
    }

    /// The reservations that credentials, or those of bot users, left behind when revoked.
    pub fn find_revoked<'a>(
        view: &View<'_>,
        accounts: impl Iterator<Item = &'a str>,
    ) -> StoreResult<Vec<String>> {
        let (mut credentials, owners): (Vec<_>, Vec<_>) =
            accounts.map(str::to_owned).partition(|id| has_prefix(id, prefix::CREDENTIAL));
        for owner in owners {
            credentials.extend(view.referrers(&owner, "owner")?);
        }
        let mut kept = Vec::new();
        // Most have just been made: these cost no read of their own.
        for credential in accounts::revoked_credentials(view, credentials)? {
            kept.extend(view.referrers(&credential, ROLE)?);
        }
        Ok(kept)
    }

    /// Notes that a service begins, to which no agent has come back yet.
    pub async fn mark_all_idle(store: &Store, now: Timestamp) -> StoreResult<()> {
        let wait = move |change: &Transaction<'_>| {
            let all = change.all_documents::<Reservation>()?.into_iter();
            for kept in all.filter(|kept| kept.idle.is_none()) {
                change.put_document(&Self { idle: Some(now.clone()), ..kept })?;
            }
            Ok(())
        };
        store.write(wait).await
    }

    /// Gives up the addresses that have waited too long, or that are too many. All are read without
    /// holding up those who write.
    pub async fn remove_expired(store: &Store, now: Timestamp) -> StoreResult<()> {
        let read_at = now.clone();
        let over = store
            .read(move |view| {
                Ok::<_, StoreError>(expired_reservations(view.all_documents()?, &read_at))
            })
            .await?;
        let is_over = move |kept: &Self| kept.idle.as_ref().is_some_and(|idle| idle.0 <= now.0);
        store
            .change_each(over, move |change, id| {
                // Somebody may have come back for it meanwhile.
                if change.find_document::<Self>(id)?.is_some_and(|kept| is_over(&kept)) {
                    change.remove_document::<Self>(id)?;
                }
                Ok(())
            })
            .await
    }

    /// Notes that addresses wait which no node of the cluster holds, as those that were copied from a file.
    pub async fn mark_unheld_idle(store: &Store) -> StoreResult<()> {
        let unheld = store.read(|view| {
            let (all, held) = (view.all_documents::<Reservation>()?, all_held(view)?);
            let unheld = all.into_iter().filter(|it| it.idle.is_none() && !held.contains(&it.id));
            Ok::<_, StoreError>(unheld.map(|kept| kept.id).collect())
        });
        store
            .change_each(unheld.await?, |change, id| {
                match change.find_document::<Self>(id)?.filter(|kept| kept.idle.is_none()) {
                    Some(kept) if holding_nodes(change, id)?.is_empty() => {
                        change.put_document(&Self { idle: Some(change.now()), ..kept })
                    }
                    _ => Ok(()),
                }
            })
            .await
    }

    /// Gives the address up.
    pub async fn remove_all(store: &Store, ids: Vec<String>) -> StoreResult<()> {
        let drop = move |change: &Transaction<'_>| {
            for id in &ids {
                change.remove_document::<Self>(id)?;
            }
            Ok(())
        };
        store.write(drop).await
    }
}

/// Those that have waited too long, or that are too many for their account.
fn expired_reservations(all: Vec<Reservation>, now: &Timestamp) -> Vec<String> {
    let oldest = DateTime::parse_from_rfc3339(&now.0)
        .ok()
        .and_then(|now| SystemTime::from(now).checked_sub(RETENTION))
        .map(Timestamp::from_system_time);
    let waits = |kept: Reservation| kept.idle.clone().map(|since| (since.0, kept));
    let mut waiting: Vec<_> = all.into_iter().filter_map(waits).collect();
    // Times of one form are in order as texts; the newest go first.
    waiting.sort_by(|(one, _), (other, _)| other.cmp(one));
    let mut counts: HashMap<String, usize> = HashMap::new();
    let is_over = |(since, kept): (String, Reservation)| {
        let count = counts.entry(kept.owner_id).or_default();
        *count += 1;
        let late = oldest.as_ref().is_some_and(|oldest| since < oldest.0);
        (late || *count > MAX_RESERVATIONS).then_some(kept.id)
    };
    waiting.into_iter().filter_map(is_over).collect()
}

fn hash_token(token: &str) -> Vec<u8> {
    Sha256::digest(token).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{EndpointKey, NodeDocument};

    fn kept(owner: &str, number: usize, idle: Option<&str>) -> Reservation {
        Reservation {
            id: format!("{owner}{number}"),
            owner_id: owner.to_owned(),
            idle: idle.map(|idle| Timestamp(idle.to_owned())),
            ..Reservation::default()
        }
    }

    #[test]
    fn who_waits_too_long_is_given_up() {
        let all = vec![
            kept("a", 1, Some("2026-03-01T00:00:00Z")),
            kept("a", 2, Some("2026-03-02T00:00:00Z")),
            kept("a", 3, None),
        ];

        assert_eq!(
            expired_reservations(all, &Timestamp("2026-03-31T12:00:00Z".to_owned())),
            ["a1"]
        );
    }

    #[test]
    fn of_too_many_those_go_that_wait_longest() {
        let day = |number| format!("2026-03-0{}T00:00:00Z", 1 + number % 2);
        let many = (0..MAX_RESERVATIONS + 2).map(|number| kept("a", number, Some(&day(number))));
        let used = (0..10).map(|number| kept("b", number, None));
        let gone = expired_reservations(
            many.chain(used).collect(),
            &Timestamp("2026-03-03T00:00:00Z".to_owned()),
        );

        assert_eq!(gone.len(), 2);
        assert!(
            gone.iter()
                .all(|id| id.trim_start_matches('a').parse::<usize>().is_ok_and(|it| it % 2 == 0))
        );
    }

    async fn stored(id: &str, idle: Option<&str>) -> Store {
        let store = Store::open(None).unwrap();
        let idle = idle.map(|idle| Timestamp(idle.to_owned()));
        let kept = Reservation { id: id.to_owned(), idle, ..Reservation::default() };
        store.write(move |change| change.put_document(&kept)).await.unwrap();
        store
    }

    fn found(store: &Store, id: &str) -> Option<Reservation> {
        store.read_blocking(|view| view.find_document::<Reservation>(id)).unwrap()
    }

    #[tokio::test]
    async fn what_no_node_holds_waits() {
        let store = stored("copied", None).await;
        let held = |change: &Transaction<'_>| {
            let node = NodeDocument { id: "node_1".to_owned(), ..NodeDocument::default() };
            change.put_document(&node)?;
            change
                .put_document(&Reservation { id: "held".to_owned(), ..Reservation::default() })?;
            let owner = RowOwner { node_id: node.id, epoch: 0 };
            hold_endpoint(change, "held", &EndpointKey::port(1), &owner)
        };
        assert_eq!(store.write(held).await.unwrap(), HoldResult::Done);

        Reservation::mark_unheld_idle(&store).await.unwrap();

        assert!(found(&store, "copied").unwrap().idle.is_some());
        assert_eq!(found(&store, "held").unwrap().idle, None);
    }

    #[tokio::test]
    async fn an_address_is_given_up_when_it_has_waited_and_nobody_has_come_back() {
        let now = Timestamp("2026-03-31T12:00:00Z".to_owned());
        for (idle, stays) in [(Some("2026-03-01T00:00:00Z"), false), (None, true)] {
            let store = stored("a", idle).await;

            Reservation::remove_expired(&store, now.clone()).await.unwrap();

            assert_eq!(found(&store, "a").is_some(), stays);
        }
    }
}
