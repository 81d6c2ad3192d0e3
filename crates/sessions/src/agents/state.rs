//! What all sessions with agents share, and how they are told no.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::time::sleep;

use ginnel_api::id::Ids;
use ginnel_base::logging::or_debug;
use ginnel_base::random_fraction;
use ginnel_gateway::{EndpointSpec, Gateway, PublicEndpoint};
use ginnel_mux::protocol::message::error_text;
use ginnel_store::{self as store, StorageFault, Store, StoreError, StoreResult};

use super::settings::AgentSettings;
use crate::accounts;
use crate::agents::access::AccessList;
use crate::agents::online_agent::OnlineAgent;
use crate::agents::registry::Registry;
use crate::agents::reservation::Reservation;
use crate::agents::rows;
use crate::cluster::{Cluster, EndpointClaim, EndpointKey, HoldResult, RemotePlace, claimant_at};
use crate::domains::{DomainClaim, DomainDenial, DomainSettings, is_foreign_port};

/// How often a bind is tried again whose node has another epoch meanwhile.
const MAX_EPOCHS: usize = 3;

/// What all sessions share.
pub struct AgentsState {
    /// Replaced as a whole at a reload; the address stays.
    pub settings: Arc<ArcSwap<AgentSettings>>,
    /// The rules for host names.
    pub domains: DomainSettings,
    pub store: Arc<Store>,
    pub gateway: Gateway,
    pub registry: Arc<Registry>,
    pub ids: Ids,
    /// The cluster of which the service is a node; none where it is the only one.
    pub cluster: Option<Arc<Cluster>>,
    /// What the node is called, for agents; none where it is the only one.
    pub node: OnceLock<String>,
}

/// For how long an agent that asks for something waits while a node cannot reach the database. Official agents
/// that are refused come back after 50 ms, 2.5 s, 125 s.
const FAULT_RETRY_TIMEOUT: Duration = Duration::from_secs(6);
/// How long after a failure it is tried again at the earliest and, where the database is there, at the latest.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// How old news of the database may be where it is there.
const FRESH: Duration = Duration::from_millis(500);

/// The code for a service that failed, where nothing is wrong with what it was asked for.
pub const FAULT_CODE: u16 = 722;

/// The origin of a bind.
#[derive(Debug, Clone, Default)]
pub struct BindOrigin {
    /// If true, the agent had the bind before, and knows its identifier.
    pub knows: bool,
    /// The digest of the token that the bind had, if a session takes its address over.
    pub replaced: Option<Vec<u8>>,
}

/// Why something is refused: words and the number of a code.
#[derive(Debug)]
pub struct AgentRefusal(pub String, pub u16);

impl From<String> for AgentRefusal {
    /// A value that is wrong and has no number of its own.
    fn from(problem: String) -> Self {
        Self(problem, 215)
    }
}

impl AgentRefusal {
    /// The token of an agent is good for nothing any more.
    pub fn revoked() -> Self {
        Self("authentication failed: the credential of this session was revoked".to_owned(), 107)
    }

    /// Whether the service itself failed.
    pub fn is_fault(&self) -> bool {
        self.1 == FAULT_CODE
    }
}

impl From<store::StoreError> for AgentRefusal {
    fn from(error: store::StoreError) -> Self {
        let problem = match error.fault() {
            Some(fault) => {
                format!("the service cannot store this now, try again: {}", fault.description())
            }
            None => format!("the service failed: {error}"),
        };
        Self(problem, FAULT_CODE)
    }
}

impl From<getrandom::Error> for AgentRefusal {
    fn from(error: getrandom::Error) -> Self {
        Self(format!("the service failed: {error}"), FAULT_CODE)
    }
}

/// How long what an agent asks for is tried again.
pub struct RetryDeadline {
    /// The node, and until when; none where it is not.
    cluster: Option<(Arc<Cluster>, Instant)>,
}

impl RetryDeadline {
    /// Waits for a moment where something is to be tried again that was refused; false where it is not.
    pub async fn allows_retry(&self, refusal: &AgentRefusal) -> bool {
        let Some((cluster, until)) = self.cluster.as_ref().filter(|_| refusal.is_fault()) else {
            return false;
        };
        // Not all at once, and nobody asks a database that is known to be away.
        let (shortest, longest) = RETRY_PAUSE;
        sleep(shortest + (longest - shortest).mul_f64(random_fraction())).await;
        while cluster.news_age() > FRESH && Instant::now() < *until {
            sleep(shortest).await;
        }
        tracing::debug!(err = %refusal.0, "what an agent asks for is tried again");
        Instant::now() < *until
    }
}

impl AgentsState {
    /// What an agent may bind now.
    pub async fn access_list(&self, online: &OnlineAgent) -> Result<AccessList, AgentRefusal> {
        let agent = online.agent.clone();
        let entries = self.store.read(move |view| accounts::access_list(view, &agent)).await?;
        entries.map(AccessList).ok_or_else(AgentRefusal::revoked)
    }

    /// Refuses a host name that belongs to another owner, or to nobody where only reserved ones may
    /// be used.
    pub async fn check_domain(
        &self,
        online: &OnlineAgent,
        host: Option<&str>,
    ) -> Result<(), AgentRefusal> {
        let Some(host) = host else { return Ok(()) };
        let (owner_id, name) = (online.agent.owner_id.clone(), host.to_owned());
        let only_reserved = self.domains.reserved_only;
        let checked = self.store.read(move |view| {
            DomainClaim { owner_id: &owner_id, only_reserved }.check_host(view, &name)
        });
        match checked.await? {
            Ok(_) => Ok(()),
            Err(DomainDenial::Foreign) => {
                Err(AgentRefusal(format!("the domain {host:?} is reserved by another owner"), 320))
            }
            Err(DomainDenial::Unreserved) => {
                Err(AgentRefusal(format!("the domain {host:?} is not reserved"), 319))
            }
        }
    }

    /// Refuses a port that belongs to another owner.
    pub async fn check_port(
        &self,
        online: &OnlineAgent,
        port: Option<u16>,
    ) -> Result<(), AgentRefusal> {
        let Some(port) = port else { return Ok(()) };
        let owner_id = online.agent.owner_id.clone();
        let read = self.store.read(move |view| is_foreign_port(view, port, &owner_id));
        match read.await? {
            false => Ok(()),
            true => Err(AgentRefusal(format!("port {port} is reserved by another owner"), 320)),
        }
    }

    /// Stores the bind that has the address of an endpoint. Returns false if a bind on another node has it. After a
    /// failure the address is free, or reserved for the agent if it knows the bind.
    pub async fn store_reservation(
        &self,
        kept: Reservation,
        credential_id: &str,
        endpoint: &PublicEndpoint,
        origin: BindOrigin,
    ) -> StoreResult<bool> {
        let Some(cluster) = &self.cluster else {
            kept.store_for_credential(&self.store, credential_id).await?;
            return Ok(true);
        };
        let pool = endpoint.pool().map(str::to_owned);
        let (bind_id, key) = (kept.id.clone(), rows::endpoint_key(endpoint));
        let claim = EndpointClaim { key, pool };
        cluster.hold_bind(&bind_id, claim.clone());
        let BindOrigin { knows, replaced } = origin;
        let written = self.store_in_cluster(cluster, kept, credential_id, claim, replaced).await;
        match &written {
            Ok(true) => cluster.confirm_bind(&bind_id),
            Ok(false) => cluster.forget_bind(&bind_id),
            // It may be stored all the same.
            Err(_) if knows => cluster.suspend_bind(&bind_id),
            Err(_) => cluster.release_bind(&bind_id),
        }
        written
    }

    async fn store_in_cluster(
        &self,
        cluster: &Cluster,
        kept: Reservation,
        credential_id: &str,
        claim: EndpointClaim,
        replaced: Option<Vec<u8>>,
    ) -> StoreResult<bool> {
        for _ in 0..MAX_EPOCHS {
            let (kept, owner, replaced) = (kept.clone(), cluster.owner(), replaced.clone());
            let claim = claim.clone();
            let written =
                kept.store_with_claim(&self.store, credential_id, claim, owner.clone(), replaced);
            match written.await? {
                HoldResult::Done => return Ok(true),
                HoldResult::Taken => return Ok(false),
                HoldResult::Superseded if cluster.wait_until_renewed(&owner).await => {}
                HoldResult::Superseded => break,
            }
        }
        let problem = "other nodes take this one for gone".to_owned();
        Err(StoreError::Server { fault: Some(StorageFault::Unreachable), problem })
    }

    /// The address of another bind's tunnel on another node, where an agent wants to have its own.
    pub async fn taken_elsewhere(
        &self,
        spec: &EndpointSpec,
        bind_id: &str,
    ) -> StoreResult<Option<String>> {
        let Some((key, url)) = self.known_elsewhere(spec, bind_id) else { return Ok(None) };
        // What is known of other nodes may be old.
        let pool_of_own = spec.pool_owner.as_ref().map(|owner| format!("pool {owner} "));
        let claimant = self.store.read(move |view| claimant_at(view, &key)).await?;
        // Whether it can be joined is found out when it is bound.
        let is_own = |claimant: &str| {
            let joins = pool_of_own.as_ref().is_some_and(|own| claimant.starts_with(own));
            claimant == bind_id || joins
        };
        Ok(claimant.filter(|claimant| !is_own(claimant)).map(|_| url))
    }

    /// The same, as far as it is known here.
    fn known_elsewhere(&self, spec: &EndpointSpec, bind_id: &str) -> Option<(EndpointKey, String)> {
        let (cluster, key) = (self.cluster.as_ref()?, rows::requested_key(spec)?);
        let others = cluster.directory.claimed_at(&key);
        let other = others.iter().find(|tunnel| *tunnel.bind_id != *bind_id)?;
        match &other.place {
            RemotePlace::Endpoint { url, .. } => Some((key, url.to_string())),
            RemotePlace::Labels(_) => None,
        }
    }

    /// Begins to wait for the database, where it may be away.
    pub fn retry_deadline(&self) -> RetryDeadline {
        let cluster = self.cluster.clone().map(|it| (it, Instant::now() + FAULT_RETRY_TIMEOUT));
        RetryDeadline { cluster }
    }

    /// Whether no other node of the cluster serves now.
    pub fn is_only_node(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.directory.is_alone(Instant::now()))
    }

    /// Gives up the addresses of binds that the registry has ended.
    pub async fn drop_reservations(&self, bind_ids: Vec<String>) {
        // In a cluster the registry has announced it, and other nodes may hold them.
        if self.cluster.is_none() {
            // Without the note an address is only kept for longer.
            or_debug!(Reservation::remove_all(&self.store, bind_ids).await, "reservations stay");
        }
    }

    /// Waits until other nodes can see what was announced before, where there are any.
    pub async fn wait_until_announced(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.wait_until_announced().await;
        }
    }

    /// A refusal as agents are told it.
    pub fn refusal_text(&self, AgentRefusal(message, number): AgentRefusal) -> String {
        let code = format!("{}{number}", self.gateway.code_prefix());
        error_text(&message, Some(&code))
    }
}
