//! Connections between nodes: one session for each two, in which either opens streams.
//!
//! A session is TLS by the certificates of the authority that all nodes have, and a `mux` session in it
//! (`link` makes it, `sessions` knows it). The node with the smaller identifier connects. `message` is what
//! is said, `serve` does what the other node asks for, and `target` is the other node, or a tunnel of its
//! agents, as the gateway sees it; `routing` chooses among them. `ended` tells
//! the others of tunnels that are gone before the database does, and `epochs` is for a node that has lost the
//! database, and does not know what has become of its endpoints. `abandoned` ends the binds of an agent that is gone, for
//! its successor.
//!
//! What one node asks another for is done there and not handed on, so that there is one hop at most.

mod abandoned;
mod absent;
mod ended;
mod epochs;
mod events;
mod link;
mod message;
mod ports;
mod routing;
mod serve;
mod sessions;
mod target;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use absent::UnreachableNode;
pub use routing::ClusterRouting;

use ginnel_base::address::{Host, HostPort};
use ginnel_base::logging::or_debug;
use ginnel_gateway::Gateway;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_mux::Code;
use ginnel_mux::protocol::rpc;
use ginnel_net::{ConnectionCaps, ConnectionLimit, Listener, ProxyProtocol, Shutdown, listen_at};

use self::link::Linker;
use self::message::{SessionCommand, SessionCommandAnswer};
use self::sessions::PeerSession;
use super::Cluster;
use super::directory::{Directory, KnownNode};
use crate::Error;
use crate::agents::{AgentCommand, Registry};

/// How long an agent of another node may take to obey: five seconds there, and the way.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a node that begins waits for sessions with the others before it takes visitors: one of them may
/// have gone without a word.
const MEETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many connections other nodes may hold; there are a few hundred nodes at most.
const MAX_CONNECTIONS: usize = 2048;

/// A socket on which no node is let in yet: its address stands in the row of the node.
pub struct BoundPeerListener {
    socket: TcpListener,
    host: Host,
    address: SocketAddr,
}

/// The other nodes, as this one is connected to them; dropping it ends all sessions.
pub struct Peers {
    linker: Arc<Linker>,
    started: Instant,
    /// Set once it has a session with each of the others, or has waited for that long enough.
    has_met_all: AtomicBool,
    _listener: Listener,
    tasks: Vec<JoinHandle<()>>,
}

/// What other nodes may ask for.
pub struct PeerServices {
    pub gateway: Gateway,
    pub registry: Arc<Registry>,
    /// The node itself; none where there is no database.
    pub cluster: Option<Arc<Cluster>>,
}

/// The session with another node, for whoever looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    pub node_id: Arc<str>,
    /// The lower version of both.
    pub protocol_version: u32,
    /// How long the last heartbeat took; none before the first came back.
    pub latency: Option<Duration>,
}

/// Why a command did not reach an agent of another node, or was not obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandFailure {
    /// There is no session with the node now.
    Unreachable(String),
    /// The node does not have the agent any more.
    Gone,
    /// The agent does not obey.
    Refused(String),
}

impl BoundPeerListener {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn bind(address: &HostPort) -> std::io::Result<Self> {
        let socket = listen_at(address).await?;
        let bound = socket.local_addr()?;
        Ok(Self { socket, host: address.host.clone(), address: bound })
    }

    /// Where other nodes reach it: at the host that was named, and the port that it has.
    pub fn public_address(&self) -> String {
        format!("{}:{}", self.host, self.address.port())
    }

    /// Lets other nodes in, and connects to them, from now on.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn start_accepting(
        self,
        directory: Arc<Directory>,
        authority: &LocalAuthority,
        services: PeerServices,
    ) -> Result<Peers, Error> {
        let caps =
            ConnectionCaps { total: MAX_CONNECTIONS, per_address: MAX_CONNECTIONS, reserved: 0 };
        let limit = ConnectionLimit::new("nodes", caps, |_| false);
        let cluster = services.cluster.clone();
        let linker = Arc::new(Linker::new(directory, authority, services)?);
        if let Some(cluster) = cluster {
            cluster.set_ending_at_nodes(abandoned::ending_at_nodes(Arc::downgrade(&linker)));
        }
        let (accepting, shutdown) = (Arc::downgrade(&linker), Shutdown::default());
        let listener = Listener::serve(
            self.socket,
            limit,
            &shutdown,
            ProxyProtocol::default(),
            move |connection, _| {
                let linker = accepting.upgrade();
                Box::pin(async move {
                    if let Some(linker) = linker {
                        linker.accept_node(connection).await;
                    }
                })
            },
        );
        let failed = |source| Error::Bind { address: self.address.to_string(), source };
        let listener = listener.map_err(failed)?;
        let tasks = vec![
            tokio::spawn(link::keep_all_connected(Arc::downgrade(&linker))),
            tokio::spawn(events::merge_events(Arc::downgrade(&linker))),
            tokio::spawn(ports::maintain_ports(Arc::downgrade(&linker))),
            tokio::spawn(epochs::watch_epochs(Arc::downgrade(&linker))),
        ];
        let (started, has_met_all) = (Instant::now(), AtomicBool::new(false));
        Ok(Peers { linker, started, has_met_all, _listener: listener, tasks })
    }
}

impl Peers {
    /// Finds hosts and tunnels of other nodes, for the gateway.
    pub fn routing(&self) -> Arc<ClusterRouting> {
        let Linker { directory, sessions, services, .. } = self.linker.as_ref();
        Arc::new(ClusterRouting::new(
            directory.clone(),
            sessions.clone(),
            services.registry.clone(),
        ))
    }

    /// The names of the nodes to which there is no session yet, in the first moments of this one: what
    /// their agents serve would not be found.
    pub fn unmet_nodes(&self) -> Vec<String> {
        if self.has_met_all.load(Ordering::Acquire) {
            return Vec::new();
        }
        let (now, own) = (Instant::now(), self.linker.directory.own_identity().0);
        let is_expected =
            |node: &KnownNode| *node.id != *own && link::is_reachable(node) && !node.is_lapsed(now);
        let mut unmet = self.linker.directory.nodes();
        unmet.retain(|node| is_expected(node) && self.linker.sessions.get(&node.id).is_none());
        if unmet.is_empty() || self.started.elapsed() >= MEETING_TIMEOUT {
            self.has_met_all.store(true, Ordering::Release);
            return Vec::new();
        }
        unmet.into_iter().map(|node| node.record.name.clone()).collect()
    }

    /// The nodes with which there has been no session for a while.
    pub fn unreachable_nodes(&self) -> Vec<UnreachableNode> {
        self.linker.absent.late_nodes(Instant::now())
    }

    /// The sessions that there are now.
    pub fn session_status(&self) -> Vec<PeerStatus> {
        let sessions = self.linker.sessions.all().into_iter();
        let status = sessions.map(|session| PeerStatus {
            node_id: session.node_id.clone(),
            protocol_version: session.protocol_version,
            latency: *session.latency.borrow(),
        });
        status.collect()
    }

    /// Has an agent of another node obey.
    ///
    /// # Errors
    /// When it cannot be reached, or does not obey.
    pub async fn send_command(
        &self,
        node_id: &str,
        session_id: &str,
        command: AgentCommand,
    ) -> Result<(), CommandFailure> {
        let unreachable = || CommandFailure::Unreachable("no session with its node".to_owned());
        let session = self.linker.sessions.get(node_id).ok_or_else(unreachable)?;
        let request = SessionCommand { session_id: session_id.to_owned(), command };
        let answer = rpc::call(&session.mux, &request, COMMAND_TIMEOUT).await;
        match answer.map_err(|error| CommandFailure::Unreachable(error.to_string()))? {
            SessionCommandAnswer { is_gone: true, .. } => Err(CommandFailure::Gone),
            SessionCommandAnswer { refusal, .. } if !refusal.is_empty() => {
                Err(CommandFailure::Refused(refusal))
            }
            SessionCommandAnswer { .. } => Ok(()),
        }
    }

    /// Says goodbye to all other nodes.
    pub async fn stop(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let goodbye = |session: Arc<PeerSession>| async move {
            session.mux.go_away(Code::NONE, "the node is stopping").await;
        };
        let sessions = self.linker.sessions.all().into_iter();
        // All at once: who does not listen takes a second.
        let leaving: Vec<_> = sessions.map(|session| tokio::spawn(goodbye(session))).collect();
        for left in leaving {
            or_debug!(left.await, "a goodbye to another node broke");
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.linker.sessions.all().iter().for_each(|session| session.mux.close());
    }
}
