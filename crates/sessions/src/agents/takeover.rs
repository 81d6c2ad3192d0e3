//! Addresses of agents that are gone, for another session of the same account.
//!
//! A killed agent leaves its addresses behind. A session of the same account that asks for one gets it at once if the
//! connection of the former session is closed. Otherwise, the former session has to send something within
//! [`MAX_SILENCE`]; a heartbeat asks it to. The bind keeps its identifier and gets another token, so that the former
//! agent is refused when it comes back with the old one.

use std::net::SocketAddr;
use std::time::Duration;

use ginnel_gateway::{EndpointSpec, PublicEndpoint};
use ginnel_mux::heartbeat;
use ginnel_store::StoreResult;

use crate::agents::access::AccessList;
use crate::agents::online_agent::OnlineAgent;
use crate::agents::registry::Registry;
use crate::agents::reservation::Reservation;
use crate::agents::rows;
use crate::agents::state::{AgentRefusal, AgentsState};
use crate::cluster::{EndpointKey, claimant_at};

/// Time without a byte after which a session does not keep its addresses.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// An address that a bind has.
pub struct TakenAddress {
    pub url: String,
    /// The key of the address in a cluster, if it is known.
    pub key: Option<EndpointKey>,
}

impl From<&PublicEndpoint> for TakenAddress {
    fn from(endpoint: &PublicEndpoint) -> Self {
        Self { url: endpoint.url().to_owned(), key: Some(rows::endpoint_key(endpoint)) }
    }
}

impl TakenAddress {
    /// Returns true if an endpoint has this address.
    pub fn is_of(&self, endpoint: &PublicEndpoint) -> bool {
        endpoint.url() == self.url || self.key == Some(rows::endpoint_key(endpoint))
    }
}

/// The bind that has an address.
pub struct AddressHolder {
    pub bind_id: String,
    pub owner_id: String,
    pub host: Option<String>,
    /// The socket address, if the bind has a port of its own.
    pub addr: Option<String>,
    pub port: Option<u16>,
}

/// A bind that was ended for its successor.
pub struct EndedHolder {
    pub bind_id: String,
    /// The digest of the token that is not valid any more.
    pub token: Vec<u8>,
}

impl From<Reservation> for AddressHolder {
    fn from(kept: Reservation) -> Self {
        let addr = kept.addr.as_deref().and_then(|addr| addr.parse::<SocketAddr>().ok());
        let port = addr.map(|addr| addr.port());
        let Reservation { id: bind_id, owner_id, host, addr, .. } = kept;
        Self { bind_id, owner_id, host, addr, port }
    }
}

impl Registry {
    /// Ends a bind of this node if its agent is gone. Returns false if the agent is there, or is the session
    /// `asking`.
    pub async fn end_abandoned_bind(&self, bind_id: &str, asking: Option<&str>) -> bool {
        // A bind that is held and not registered is just being made.
        let Some((token, session)) = self.bind_session(bind_id) else {
            return !self.is_held_here(bind_id);
        };
        if let Some(online) = &session {
            if asking == Some(online.id.as_str())
                || heartbeat::is_answered_within(&online.session, MAX_SILENCE).await
            {
                return false;
            }
            tracing::info!(session = %online.id, "a silent session loses its address");
            online.session.close();
        }
        self.drop_bind_of_token(bind_id, &token)
    }
}

impl AgentsState {
    /// Ends the bind that has an address, for a session of its account, if its agent is gone on all nodes.
    pub async fn end_abandoned_holder(
        &self,
        online: &OnlineAgent,
        access: &AccessList,
        taken: &TakenAddress,
    ) -> Result<Option<EndedHolder>, AgentRefusal> {
        let Some(holder) = self.find_holder(taken).await? else { return Ok(None) };
        let shown = holder.host.as_deref().or(holder.addr.as_deref()).unwrap_or_default();
        if holder.owner_id != online.agent.owner_id || !access.allows_host(shown) {
            return Ok(None);
        }
        self.check_domain(online, holder.host.as_deref()).await?;
        self.check_port(online, holder.port).await?;
        let bind_id = holder.bind_id.clone();
        let read = self.store.read(move |view| view.find_document::<Reservation>(&bind_id));
        let Some(kept) = read.await? else { return Ok(None) };
        let (here, elsewhere) = tokio::join!(
            self.registry.end_abandoned_bind(&holder.bind_id, Some(&online.id)),
            self.end_elsewhere(&holder.bind_id),
        );
        if !here || !elsewhere? {
            return Ok(None);
        }
        tracing::info!(session = %online.id, url = taken.url, "an address is taken over");
        Ok(Some(EndedHolder { bind_id: holder.bind_id, token: kept.token }))
    }

    async fn end_elsewhere(&self, bind_id: &str) -> StoreResult<bool> {
        match &self.cluster {
            Some(cluster) => cluster.end_abandoned_bind(bind_id).await,
            None => Ok(true),
        }
    }

    async fn find_holder(&self, taken: &TakenAddress) -> StoreResult<Option<AddressHolder>> {
        if let Some(holder) = self.registry.holder_of(taken) {
            return Ok(Some(holder));
        }
        let Some(key) = taken.key.clone().filter(|_| self.cluster.is_some()) else {
            return Ok(None);
        };
        let find = move |view: &ginnel_store::View<'_>| match claimant_at(view, &key)? {
            // The claimant may be a pool, which has no reservation.
            Some(bind_id) => view.find_document::<Reservation>(&bind_id),
            None => Ok(None),
        };
        Ok(self.store.read(find).await?.map(AddressHolder::from))
    }
}

/// Returns true if an agent asks for an address that it names, for itself.
pub fn names_address(spec: &EndpointSpec) -> bool {
    let is_named = spec.host.is_some() || spec.subdomain.is_some() || spec.addr.is_some();
    is_named && spec.pool_owner.is_none()
}
