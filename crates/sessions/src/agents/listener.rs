//! The address that agents connect to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use ginnel_api::Timestamp;
use ginnel_base::logging::or_debug;
use ginnel_mux::{MuxSession, Side};
use ginnel_net::{
    self as net, AcceptedConnection, ConnectionLimit, Listener, Permit, ProxyProtocol, Shutdown,
    tls,
};
use ginnel_store::StoreResult;

use crate::Error;
use crate::agents::reservation::Reservation;
use crate::agents::settings::AgentSettings;
use crate::agents::socket::AgentSocket;
use crate::agents::state::AgentsState;
use crate::agents::{revocation, session};

/// How often addresses that nobody came back for are given up.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The length of a time that says no more than the hour.
const HOUR_TEXT_LENGTH: usize = "2026-01-02T03".len();

/// A socket that agents are not taken from yet: until their tokens are known, who is refused does not
/// come back.
pub struct BoundAgentListener {
    socket: TcpListener,
    config: Arc<ServerConfig>,
    state: Arc<AgentsState>,
}

/// The listener at work; dropping it takes no more agents.
pub struct AgentListener {
    listener: Listener,
    limit: Arc<ConnectionLimit>,
    state: Arc<AgentsState>,
    sweeping: JoinHandle<()>,
}

impl BoundAgentListener {
    /// Listens.
    pub async fn bind(state: Arc<AgentsState>, (host, port): (&str, u16)) -> Result<Self, Error> {
        let authority = state.gateway.authority();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => Error::AddressInUse(format!("{host}:{port}")),
            _ => Error::Bind { address: format!("{host}:{port}"), source },
        };
        let socket = net::listen_on(host, port).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        authority.add_host(host);
        authority.add_address(address.ip());
        let config = authority.server_config(&[])?;
        // The agents of other nodes have not gone because this one begins.
        if state.cluster.is_none() {
            Reservation::mark_all_idle(&state.store, state.ids.now()).await?;
        }
        revocation::follow_accounts(&state);
        revocation::follow_lost_binds(&state);
        Ok(Self { socket, config, state })
    }

    /// Takes agents from now on.
    pub fn start_accepting(self) -> Result<AgentListener, Error> {
        let Self { socket, config, state } = self;
        let limit = connection_limit(&state);
        let sweeping = ginnel_base::tasks::spawn(sweep_reservations(state.clone()));
        let welcoming = state.clone();
        // Their sessions are ended by the registry, which tells them why.
        let shutdown = Shutdown::default();
        let gateway = state.gateway.clone();
        let proxies = match gateway.expects_proxy_protocol() {
            true => ProxyProtocol::expected_from(move |address| gateway.trusts(address)),
            false => ProxyProtocol::default(),
        };
        let listener =
            Listener::serve(socket, limit.clone(), &shutdown, proxies, move |connection, _| {
                Box::pin(accept_agent(connection, config.clone(), welcoming.clone()))
            });
        let failed = |source| Error::Bind { address: "the port for agents".to_owned(), source };
        Ok(AgentListener { listener: listener.map_err(failed)?, limit, state, sweeping })
    }
}

impl AgentListener {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// How many connections are held.
    pub fn limit(&self) -> &Arc<ConnectionLimit> {
        &self.limit
    }

    /// Takes over new settings but for the address; sessions keep those that they began with.
    pub fn reconfigure(&self, settings: AgentSettings) {
        self.limit.set_caps(settings.connection_caps());
        self.state.settings.store(Arc::new(settings));
    }

    /// Tells agents from now on which node of a cluster this is; false if they have another.
    pub fn name_node(&self, name: &str) -> bool {
        self.state.node.get_or_init(|| name.to_owned()) == name
    }

    /// Takes no more agents.
    pub fn close(&self) {
        self.listener.close();
        self.sweeping.abort();
    }
}

impl Drop for AgentListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// The limit for agents: those that are connected may come back, and no address keeps the agents of others out.
fn connection_limit(state: &AgentsState) -> Arc<ConnectionLimit> {
    let (registry, gateway) = (state.registry.clone(), state.gateway.clone());
    let caps = state.settings.load().connection_caps();
    ConnectionLimit::with_fair_shares("agents", caps, move |address| {
        registry.is_connected_from(address) || gateway.trusts(address)
    })
}

async fn accept_agent(
    connection: AcceptedConnection,
    config: Arc<ServerConfig>,
    state: Arc<AgentsState>,
) {
    let AcceptedConnection { stream, peer, permit, .. } = connection;
    let settings = state.settings.load_full();
    let prompt = Arc::new(AtomicBool::new(true));
    let beginning = async {
        if !net::first_byte(&stream, settings.first_byte_timeout).await {
            return None;
        }
        let socket = AgentSocket::new(stream, prompt.clone());
        let stream = tls::accept_tls(socket, config, settings.handshake_timeout).await;
        or_debug!(stream, peer = %peer, "a TLS handshake of an agent failed")
    };
    // Boxed, so that the memory of the handshake is freed at its end.
    let Some(stream) = Box::pin(run_unless_evicted(&permit, peer, beginning)).await else { return };
    let (session, incoming) =
        MuxSession::start_unauthenticated(Box::new(stream), Side::Service, settings.login_limits());
    session::serve_session(state, session, incoming, peer, prompt, Some(permit)).await;
}

/// Runs a part of a login, unless the connection has to make room for that of another address.
pub(super) async fn run_unless_evicted<T>(
    permit: &Permit,
    peer: SocketAddr,
    part: impl Future<Output = Option<T>>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = part => done,
        () = permit.wait_until_evicted() => {
            tracing::debug!(peer = %peer, "a connection without a login made room for another");
            None
        }
    }
}

/// Gives up addresses that have waited too long; of several nodes, one does that.
async fn review_reservations(state: &AgentsState, now: Timestamp) -> StoreResult<()> {
    if let Some(cluster) = &state.cluster {
        if !cluster.directory.is_first(Instant::now()) {
            return Ok(());
        }
        Reservation::mark_unheld_idle(&state.store).await?;
    }
    Reservation::remove_expired(&state.store, now).await
}

async fn sweep_reservations(state: Arc<AgentsState>) {
    let mut looked = None;
    loop {
        // Hours are short beside the days for which addresses wait.
        let now = state.ids.now();
        let hour = now.0.get(..HOUR_TEXT_LENGTH).map(str::to_owned);
        if looked != hour {
            // What stays on disk is looked at again in an hour.
            or_debug!(review_reservations(&state, now).await, "old reservations stay");
            looked = hour;
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let over = state.registry.expire_binds(state.settings.load().reserve);
        if !over.is_empty() {
            // A reservation that stays on disk lets its owner come back later than promised.
            state.drop_reservations(over).await;
        }
    }
}
