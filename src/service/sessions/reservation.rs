//! Addresses that agents had, kept over a restart of the service.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::service::edge::{Endpoint, Wanted};
use crate::service::store::{Document, Error, Store};

/// The address of a bind, for the agent that had it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Reservation {
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
}

impl Document for Reservation {
    const PREFIX: &'static str = "bind";

    fn id(&self) -> &str {
        &self.id
    }
}

impl Reservation {
    /// What to keep of an endpoint.
    pub fn of(id: &str, token: &str, owner_id: &str, endpoint: &Endpoint) -> Self {
        Self {
            id: id.to_owned(),
            token: digest(token),
            owner_id: owner_id.to_owned(),
            host: endpoint.host().map(str::to_owned),
            addr: endpoint.address().map(|address| address.to_string()),
        }
    }

    /// The reservation of a bind, if this agent may have it.
    pub fn find(
        store: &Store,
        id: &str,
        token: &str,
        owner_id: &str,
    ) -> Result<Option<Self>, Error> {
        let found = store.read(|view| view.find::<Self>(id))?;
        Ok(found.filter(|kept| kept.owner_id == owner_id && kept.is_for(token)))
    }

    /// Asks for the same address again.
    pub fn fill(self, wanted: &mut Wanted) {
        wanted.host = self.host.or(wanted.host.take());
        wanted.addr = self.addr.or(wanted.addr.take());
    }

    fn is_for(&self, token: &str) -> bool {
        self.token.ct_eq(&digest(token)).into()
    }

    /// Writes it down.
    pub async fn keep(self, store: &Store) -> Result<(), Error> {
        store.write(move |change| change.put(&self)).await
    }

    /// Gives the address up.
    pub async fn drop(store: &Store, ids: Vec<String>) -> Result<(), Error> {
        let drop = move |change: &crate::service::store::Transaction<'_>| {
            for id in &ids {
                change.remove::<Self>(id)?;
            }
            Ok(())
        };
        store.write(drop).await
    }
}

fn digest(token: &str) -> Vec<u8> {
    Sha256::digest(token).to_vec()
}
