//! The address that agents connect to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::gateway::tls::authority::Authority;
use crate::mux::{LoginLimits, Session, Side};
use crate::net::{self, Acceptor, Connection, ConnectionLimit, FIRST_BYTE_TIMEOUT};
use crate::service::Error;
use crate::service::agents::reservation::Reservation;
use crate::service::agents::socket::Socket;
use crate::service::agents::state::AgentsState;
use crate::service::agents::{revocation, session};

/// How long TLS may take.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often addresses that nobody came back for are given up.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The length of a time that says no more than the hour.
const HOUR_TEXT_LENGTH: usize = "2026-01-02T03".len();

/// The listener at work; dropping it takes no more agents.
pub(crate) struct AgentListener {
    socket: net::Listener,
    limit: Arc<ConnectionLimit>,
    tasks: [JoinHandle<()>; 2],
}

impl AgentListener {
    /// Listens, and takes agents as soon as `opened` is told to: before that their tokens may not
    /// be known, and who is refused does not come back.
    pub async fn start(
        state: Arc<AgentsState>,
        authority: &Arc<Authority>,
        opened: oneshot::Receiver<()>,
    ) -> Result<Self, Error> {
        let (host, port) = (state.settings.host.clone(), state.settings.port);
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => Error::AddressInUse(format!("{host}:{port}")),
            _ => Error::Bind { address: format!("{host}:{port}"), source },
        };
        let listener = TcpListener::bind((host.as_str(), port)).await.map_err(failed)?;
        let (socket, acceptor) = net::Listener::new(listener).map_err(failed)?;
        authority.add_host(&host);
        authority.add_address(socket.address().ip());
        let config = authority.server_config(&[])?;
        Reservation::all_wait(&state.store, state.ids.now()).await?;
        revocation::follow(&state);
        let limit = limit(&state);
        let accepting = accept(acceptor, limit.clone(), config, state.clone());
        let accepting = tokio::spawn(async move {
            // A service that does not come to be takes nobody.
            if opened.await.is_ok() {
                accepting.await;
            }
        });
        Ok(Self { socket, limit, tasks: [accepting, tokio::spawn(sweep(state))] })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// How many connections are held.
    pub fn limit(&self) -> &ConnectionLimit {
        &self.limit
    }

    /// Takes no more agents.
    pub fn close(&self) {
        self.socket.close();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for AgentListener {
    fn drop(&mut self) {
        self.close();
    }
}

/// The limit for agents: those that are connected may always come back.
fn limit(state: &AgentsState) -> Arc<ConnectionLimit> {
    let (registry, proxies) = (state.registry.clone(), state.settings.trusted_proxies.clone());
    ConnectionLimit::new("agents", state.settings.connections, move |address| {
        registry.is_connected_from(address) || proxies.contains(address)
    })
}

async fn accept(
    acceptor: Acceptor,
    limit: Arc<ConnectionLimit>,
    config: Arc<ServerConfig>,
    state: Arc<AgentsState>,
) {
    while let Some(connection) = acceptor.accept(&limit).await {
        tokio::spawn(welcome(connection, config.clone(), state.clone()));
    }
}

async fn welcome(connection: Connection, config: Arc<ServerConfig>, state: Arc<AgentsState>) {
    let Connection { stream, peer, permit: _permit } = connection;
    if !net::first_byte(&stream, FIRST_BYTE_TIMEOUT).await {
        return;
    }
    let prompt = Arc::new(AtomicBool::new(true));
    let socket = Socket::new(stream, prompt.clone());
    let shaking = TlsAcceptor::from(config).accept(socket);
    // Whoever does not speak TLS is no agent.
    let Ok(Ok(stream)) = tokio::time::timeout(TLS_TIMEOUT, shaking).await else { return };
    let login = LoginLimits::default();
    let (session, incoming) = Session::start_unauthenticated(stream, Side::Service, login);
    session::hold(state, session, incoming, peer, prompt).await;
}

async fn sweep(state: Arc<AgentsState>) {
    let mut looked = None;
    loop {
        // Hours are short beside the days for which addresses wait.
        let now = state.ids.now();
        let hour = now.0.get(..HOUR_TEXT_LENGTH).map(str::to_owned);
        if looked != hour {
            // What stays on disk is looked at again in an hour.
            let _ = Reservation::give_up(&state.store, now).await;
            looked = hour;
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let over = state.registry.sweep(state.settings.reserve);
        if !over.is_empty() {
            // A reservation that stays on disk lets its owner come back later than promised.
            let _ = Reservation::drop(&state.store, over).await;
        }
    }
}
