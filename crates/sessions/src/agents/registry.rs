//! Who is online, and with what.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ginnel_base::logging::or_debug;
use ginnel_gateway::{EndpointTraffic, Gateway, PublicEndpoint, Target, TunnelGroups};
use ginnel_mux::Code;
use ginnel_mux::protocol::message::Hidden;
use ginnel_net::SourceAddress;

use crate::accounts::AuthenticatedAgent;
use crate::agents::access::AccessList;
use crate::agents::online_agent::OnlineAgent;
use crate::agents::registry_state::{RegisteredEndpoint, RegistryState};
use crate::agents::rows;
use crate::agents::session_counts::SessionCounts;
use crate::agents::takeover::{AddressHolder, TakenAddress};
use crate::agents::tunnel::OnlineTunnel;
use crate::cluster::{Cluster, TunnelDocument};

/// How long a goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);
/// How often it is looked which agents carry nothing any more, while the service stops.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// The agents that are connected, and their tunnels.
#[derive(Default)]
pub struct Registry {
    inner: Mutex<RegistryState>,
    counts: Arc<SessionCounts>,
}

/// A tunnel that has ended, and the endpoint that it had; dropping that takes it offline.
pub struct EndedBind {
    pub tunnel: Arc<OnlineTunnel>,
    pub endpoint: Option<PublicEndpoint>,
}

/// What became of the request to have a bind again.
pub enum Reclaimed {
    /// It goes on under its old address; `moved` from the agent of another credential.
    Done { url: String, moved: Option<AuthenticatedAgent> },
    /// The access list of the credential does not allow its address.
    Forbidden { url: String },
    /// Nobody knows it, or the token is another.
    Unknown,
}

impl Registry {
    /// The registry of a node, or of a service that is none.
    pub fn new(cluster: Option<Arc<Cluster>>) -> Self {
        let inner = RegistryState { cluster, ..RegistryState::default() };
        Self { inner: Mutex::new(inner), counts: Arc::default() }
    }

    /// Notes that an agent is connected; a session that it left behind is ended.
    pub fn add_session(&self, online: &Arc<OnlineAgent>) {
        let mut inner = self.lock_state();
        let clients = inner.clients.entry(rows::client_digest(&online.client_id)).or_default();
        if let Some(left) = clients.first() {
            left.session.close();
        }
        clients.push(online.clone());
        *inner.sources.entry(SourceAddress::from_ip(online.ip)).or_default() += 1;
        inner.sessions.insert(online.id.clone(), online.clone());
        if let Some(cluster) = &inner.cluster {
            cluster.add_session(rows::session_row(online));
        }
    }

    /// Whether an agent that shows this id and cookie has, or had a moment ago, a session.
    pub fn is_returning(&self, client_id: &str, cookie: &Hidden) -> bool {
        let inner = self.lock_state();
        let same = |other: &Arc<OnlineAgent>| {
            bool::from(subtle::ConstantTimeEq::ct_eq(
                other.cookie.reveal().as_bytes(),
                cookie.reveal().as_bytes(),
            ))
        };
        let sessions = inner.clients.get(&rows::client_digest(client_id));
        sessions.is_some_and(|sessions| sessions.iter().any(same))
    }

    /// Whether an agent with this id has a session.
    pub fn has_client(&self, client_id: &str) -> bool {
        self.lock_state().clients.contains_key(&rows::client_digest(client_id))
    }

    /// Ends the sessions that an agent has left behind for another node, where it has this tunnel in a later
    /// session: they may be dead, and nobody would know for a while.
    pub fn end_stale_sessions(&self, row: &TunnelDocument) {
        let inner = self.lock_state();
        let sessions = inner.clients.get(&row.client).into_iter().flatten();
        // Identifiers begin with the time.
        let is_left = |online: &&Arc<OnlineAgent>| {
            online.agent.owner_id == row.account_id && online.id < row.session_id
        };
        for online in sessions.filter(is_left) {
            tracing::debug!(session = %online.id, "the agent is at another node now");
            online.session.close();
        }
    }

    /// Notes that an agent is gone: its tunnels are, its addresses wait for it.
    pub fn remove_session(&self, online: &OnlineAgent) {
        let mut guard = self.lock_state();
        let inner = &mut *guard;
        inner.remove_session(online);
        for bind_id in inner.binds_of_sessions.remove(&online.id).unwrap_or_default() {
            inner.suspend_bind(online, bind_id);
        }
    }

    /// Ends a tunnel whose address waits for its agent to ask again.
    pub fn suspend_tunnel(&self, tunnel: &OnlineTunnel) {
        tunnel.stop();
        self.lock_state().suspend_bind(&tunnel.session, tunnel.bind_id.clone());
    }

    /// Notes a new tunnel; false where its session is over, and the address waits for its agent.
    pub fn register_tunnel(
        &self,
        token: Hidden,
        endpoint: Option<PublicEndpoint>,
        tunnel: Arc<OnlineTunnel>,
    ) -> bool {
        let mut inner = self.lock_state();
        let agent = tunnel.session.agent.clone();
        let bind_id = tunnel.bind_id.clone();
        let session_id = tunnel.session.id.clone();
        let mut bound =
            RegisteredEndpoint { token, agent, endpoint, tunnel: Some(tunnel.clone()), idle: None };
        let is_online = inner.sessions.contains_key(&tunnel.session.id);
        if is_online {
            inner.add_tunnel(tunnel, bound.endpoint.as_ref());
            inner.record_bind(session_id, &bind_id);
        } else {
            tunnel.stop();
            if bound.endpoint.is_none() {
                return false;
            }
            // The agent was lost while it waited for this; it may come back for the address.
            bound.detach_tunnel();
        }
        inner.binds.insert(bind_id, bound);
        is_online
    }

    /// Gives a bind to the agent that proves to own it, whoever serves it now.
    pub fn reclaim_bind(
        &self,
        bind_id: &str,
        token: &Hidden,
        (agent, access): (&AuthenticatedAgent, &AccessList),
        make: impl FnOnce(&PublicEndpoint) -> Arc<OnlineTunnel>,
    ) -> Reclaimed {
        let mut guard = self.lock_state();
        let inner = &mut *guard;
        let Some(bound) = inner.binds.get_mut(bind_id) else { return Reclaimed::Unknown };
        let proven = subtle::ConstantTimeEq::ct_eq(
            bound.token.reveal().as_bytes(),
            token.reveal().as_bytes(),
        );
        let Some(endpoint) = &bound.endpoint else { return Reclaimed::Unknown };
        if bound.agent.owner_id != agent.owner_id || !bool::from(proven) {
            return Reclaimed::Unknown;
        }
        if !access.allows_endpoint(endpoint) {
            return Reclaimed::Forbidden { url: endpoint.url().to_owned() };
        }
        let tunnel = make(endpoint);
        if !inner.sessions.contains_key(&tunnel.session.id) {
            return Reclaimed::Unknown;
        }
        endpoint.retarget(Some(tunnel.clone()));
        let url = endpoint.url().to_owned();
        bound.idle = None;
        let before = std::mem::replace(&mut bound.agent, agent.clone());
        let moved = Some(before).filter(|before| before != agent);
        let row = inner.cluster.as_ref().map(|_| rows::tunnel_row(&tunnel, Some(endpoint)));
        let before = bound.tunnel.replace(tunnel.clone());
        if let Some(before) = before {
            inner.remove_tunnel(&before.id);
        }
        inner.record_bind(tunnel.session.id.clone(), bind_id);
        inner.tunnels.insert(tunnel);
        if let Some((cluster, row)) = inner.cluster.as_ref().zip(row) {
            cluster.add_tunnel(row);
        }
        Reclaimed::Done { url, moved }
    }

    /// Gives a bind back to the agent that had it.
    pub fn return_bind(&self, bind_id: &str, agent: AuthenticatedAgent) {
        if let Some(bound) = self.lock_state().binds.get_mut(bind_id) {
            bound.agent = agent;
        }
    }

    /// Ends a tunnel of a session, and returns it with its endpoint; none when the session has none of that id.
    ///
    /// What its visitors are being served goes on.
    pub fn unbind(&self, online: &OnlineAgent, bind_id: &str) -> Option<EndedBind> {
        let mut inner = self.lock_state();
        inner.binds.get(bind_id)?.tunnel_of(online)?;
        if let Some(binds) = inner.binds_of_sessions.get_mut(&online.id) {
            binds.remove(bind_id);
        }
        let bound = inner.remove_bind(bind_id)?;
        let tunnel = bound.tunnel?;
        inner.remove_tunnel(&tunnel.id);
        Some(EndedBind { tunnel, endpoint: bound.endpoint })
    }

    /// The agents that have a session or an address.
    pub fn known_agents(&self) -> Vec<AuthenticatedAgent> {
        let inner = self.lock_state();
        let online = inner.sessions.values().map(|online| &online.agent);
        let bound = inner.binds.values().map(|bound| &bound.agent);
        online.chain(bound).cloned().collect::<HashSet<_>>().into_iter().collect()
    }

    /// Takes everything from an agent: its sessions, which are given back with the tunnels that they
    /// had, and its addresses. What its tunnels carry is cut off.
    pub fn expel_agent(
        &self,
        agent: &AuthenticatedAgent,
    ) -> Vec<(Arc<OnlineAgent>, Vec<Arc<OnlineTunnel>>)> {
        let mut guard = self.lock_state();
        let inner = &mut *guard;
        let own = inner.sessions.values().filter(|online| online.agent == *agent);
        let sessions: Vec<_> = own.cloned().collect();
        inner.retain_binds(|bound| bound.agent != *agent);
        let mut expelled = Vec::with_capacity(sessions.len());
        for online in sessions {
            inner.remove_session(&online);
            inner.binds_of_sessions.remove(&online.id);
            let tunnels = inner.tunnels.values().filter(|tunnel| tunnel.session.id == online.id);
            let tunnels: Vec<_> = tunnels.cloned().collect();
            for tunnel in &tunnels {
                inner.remove_tunnel(&tunnel.id);
                tunnel.stop();
            }
            expelled.push((online, tunnels));
        }
        expelled
    }

    /// Takes from an agent what its access list does not allow: addresses, and tunnels, which are
    /// given back. What the tunnels carry is cut off.
    pub fn narrow_access(
        &self,
        agent: &AuthenticatedAgent,
        access: &AccessList,
    ) -> Vec<Arc<OnlineTunnel>> {
        // Every login and every bind asks this, and most lists allow everything.
        if access.is_open() {
            return Vec::new();
        }
        let mut guard = self.lock_state();
        let inner = &mut *guard;
        let mut stopped = Vec::new();
        inner.retain_binds(|bound| {
            let stays = bound.agent != *agent || bound.is_allowed(access);
            if !stays {
                stopped.extend(bound.tunnel.take());
            }
            stays
        });
        for tunnel in &stopped {
            inner.remove_tunnel(&tunnel.id);
            tunnel.stop();
        }
        stopped
    }

    /// Ends a bind and gives its address up; returns the tunnel that it had.
    pub fn drop_bind(&self, bind_id: &str) -> Option<Arc<OnlineTunnel>> {
        let mut inner = self.lock_state();
        let tunnel = inner.remove_bind(bind_id)?.tunnel?;
        inner.remove_tunnel(&tunnel.id);
        tunnel.stop();
        Some(tunnel)
    }

    /// Returns the token of a bind and the session that serves it.
    pub fn bind_session(&self, bind_id: &str) -> Option<(Hidden, Option<Arc<OnlineAgent>>)> {
        let inner = self.lock_state();
        let bound = inner.binds.get(bind_id)?;
        Some((bound.token.clone(), bound.tunnel.as_ref().map(|tunnel| tunnel.session.clone())))
    }

    /// Returns true if this node of a cluster holds a bind, or is about to.
    pub fn is_held_here(&self, bind_id: &str) -> bool {
        let cluster = self.lock_state().cluster.clone();
        cluster.is_some_and(|cluster| cluster.is_holding(bind_id))
    }

    /// Ends a bind that still has this token, and gives its address up. Returns false if it has another one.
    pub fn drop_bind_of_token(&self, bind_id: &str, token: &Hidden) -> bool {
        let mut inner = self.lock_state();
        let Some(bound) = inner.binds.get(bind_id) else { return true };
        if bound.token != *token {
            return false;
        }
        let tunnel = inner.remove_bind(bind_id).and_then(|bound| bound.tunnel);
        if let Some(tunnel) = tunnel {
            inner.remove_tunnel(&tunnel.id);
            tunnel.stop();
        }
        true
    }

    /// Returns the bind that has an address for itself.
    pub(super) fn holder_of(&self, taken: &TakenAddress) -> Option<AddressHolder> {
        let inner = self.lock_state();
        let endpoints = inner
            .binds
            .iter()
            .filter_map(|(id, bound)| Some((id, bound, bound.endpoint.as_ref()?)));
        let (bind_id, bound, endpoint) = endpoints
            .filter(|(_, _, endpoint)| endpoint.pool().is_none())
            .find(|(_, _, endpoint)| taken.is_of(endpoint))?;
        Some(AddressHolder {
            bind_id: bind_id.clone(),
            owner_id: bound.agent.owner_id.clone(),
            host: endpoint.host().map(str::to_owned),
            addr: endpoint.address().map(|address| address.to_string()),
            port: endpoint.address().map(|address| address.port()),
        })
    }

    /// Gives up the addresses that nobody came back for within `reserve`; says which.
    pub fn expire_binds(&self, reserve: Duration) -> Vec<String> {
        let mut inner = self.lock_state();
        let is_over =
            |bound: &RegisteredEndpoint| bound.idle.is_some_and(|since| since.elapsed() >= reserve);
        let over = inner.binds.iter().filter(|(_, bound)| is_over(bound));
        let over = over.map(|(id, _)| id.clone()).collect::<Vec<_>>();
        over.iter().for_each(|id| drop(inner.remove_bind(id)));
        over
    }

    /// What was counted of all sessions.
    pub fn counts(&self) -> &Arc<SessionCounts> {
        &self.counts
    }

    /// The sessions, oldest first.
    pub fn sessions(&self) -> Vec<Arc<OnlineAgent>> {
        self.lock_state().sessions.values().cloned().collect()
    }

    /// Whether an agent is connected from where this address is.
    pub fn is_connected_from(&self, address: IpAddr) -> bool {
        self.lock_state().sources.contains_key(&SourceAddress::from_ip(address))
    }

    /// The tunnels, oldest first.
    pub fn tunnels(&self) -> Vec<Arc<OnlineTunnel>> {
        self.lock_state().tunnels.values().cloned().collect()
    }

    /// The session with this identifier.
    pub fn find_session(&self, id: &str) -> Option<Arc<OnlineAgent>> {
        self.lock_state().sessions.get(id).cloned()
    }

    /// The tunnel with this identifier.
    pub fn find_tunnel(&self, id: &str) -> Option<Arc<OnlineTunnel>> {
        self.lock_state().tunnels.get(id).cloned()
    }

    /// Who has a port of its own, or had it a moment ago: the bind, its owner, and the tunnel that serves it.
    pub fn holder_of_port(&self, port: u16) -> Option<(String, String, Option<String>)> {
        let inner = self.lock_state();
        let has_port = |bound: &RegisteredEndpoint| {
            let address = bound.endpoint.as_ref().and_then(PublicEndpoint::address);
            address.is_some_and(|address| address.port() == port)
        };
        // Of several that share it, one that is there.
        let holders = inner.binds.iter().filter(|(_, bound)| has_port(bound));
        let (bind_id, bound) = holders.max_by_key(|(_, bound)| bound.tunnel.is_some())?;
        let tunnel = bound.tunnel.as_ref().map(|tunnel| tunnel.id.clone());
        Some((bind_id.clone(), bound.agent.owner_id.clone(), tunnel))
    }

    /// What is done with the traffic of a bind's endpoint, while somebody serves it.
    pub fn bind_traffic(&self, bind_id: &str) -> Option<EndpointTraffic> {
        let inner = self.lock_state();
        let bound = inner.binds.get(bind_id).filter(|bound| bound.tunnel.is_some())?;
        bound.endpoint.as_ref().map(PublicEndpoint::traffic)
    }

    /// The online tunnels that serve all of these labels, oldest first.
    pub fn tunnels_with_labels(&self, labels: &BTreeMap<String, String>) -> Vec<Arc<OnlineTunnel>> {
        self.lock_state().tunnels.with_labels(labels)
    }

    /// Says goodbye to agents as soon as they carry nothing, until there are none or the time is over.
    ///
    /// The others are reached as before, also by visitors of other nodes: an agent with one session can be
    /// nowhere else before that ends.
    pub async fn drain_agents(&self, gateway: &Gateway, limit: Duration) {
        let draining = async {
            loop {
                // Connections that only wait for a request keep no agent.
                self.tunnels().iter().for_each(|tunnel| gateway.close_idle(&tunnel.id));
                let mut sessions = self.sessions();
                if sessions.is_empty() {
                    return;
                }
                sessions.retain(|online| online.shares.is_idle());
                close_sessions(sessions).await;
                tokio::time::sleep(DRAIN_INTERVAL).await;
            }
        };
        let drained = tokio::time::timeout(limit, draining).await;
        or_debug!(drained, "agents are sent away while they are in use");
    }

    /// Says goodbye to all agents, who are to come back.
    pub async fn dismiss_all(&self) {
        close_sessions(self.sessions()).await;
        self.lock_state().binds.clear();
    }

    fn lock_state(&self) -> MutexGuard<'_, RegistryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends sessions, whose agents are to come back.
async fn close_sessions(sessions: Vec<Arc<OnlineAgent>>) {
    let mut leaving = tokio::task::JoinSet::new();
    for online in sessions {
        leaving.spawn(async move {
            let goodbye = online.session.go_away(Code::NONE, "the service is stopping");
            // Whoever does not listen is not waited for.
            let said = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await;
            or_debug!(said, session = %online.id, "an agent did not hear that the service stops");
            online.session.close();
        });
    }
    while leaving.join_next().await.is_some() {}
}

impl TunnelGroups for Registry {
    fn matching_targets(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
    ) -> Vec<Arc<dyn Target>> {
        let serving =
            self.lock_state().tunnels.with_labels_from(labels, skipped, most, |_| true).into_iter();
        serving.map(|tunnel| tunnel as Arc<dyn Target>).collect()
    }

    fn agent_lost_at(&self, labels: &BTreeMap<String, String>) -> Option<Instant> {
        self.lock_state().lost_labels.lost_at(labels)
    }
}
