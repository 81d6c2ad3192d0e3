//! Making sessions with other nodes, and keeping them.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use ginnel_base::address::HostPort;
use ginnel_base::logging::or_debug;
use ginnel_gateway::tls::NodeTls;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_mux::protocol::read_kind;
use ginnel_mux::protocol::rpc::{self, IncomingCall};
use ginnel_mux::{Incoming, MuxSession, SessionLimits, Side, heartbeat};
use ginnel_net::{AcceptedConnection, DialRole, dial_host, tls};

use super::absent::AbsentNodes;
use super::message::{Hello, HelloAnswer, kind};
use super::serve::serve_streams;
use super::sessions::{PeerSession, PeerSessions};
use super::target::NodeTarget;
use super::{PeerServices, ended};
use crate::Error;
use crate::cluster::directory::{Directory, KnownNode};
use crate::cluster::node::PROTOCOL_VERSION;

/// What nodes speak inside TLS.
const ALPN: [&str; 1] = ["ginnel-node"];
/// The name in the certificate of every node: which one it is, it says itself.
const NODE_NAME: &str = "node.ginnel.internal";
/// How long connecting, TLS and the first words may take, each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a node asks another if it is there, and how late the response may be: what dies without a
/// word is noticed within five seconds.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
const HEARTBEAT_TOLERANCE: Duration = Duration::from_secs(3);
/// How long to wait before the next try, at first and at most.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(3);
/// How often it is looked which nodes there are, where nothing says that they have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// A node trusts another with all visitors that it has.
const LIMITS: SessionLimits = SessionLimits { open: 1 << 17, waiting: 1 << 12 };

/// Makes sessions with other nodes.
pub(super) struct Linker {
    pub directory: Arc<Directory>,
    pub sessions: Arc<PeerSessions>,
    pub services: Arc<PeerServices>,
    tls: NodeTls,
    /// The nodes with which there should be a session, and is none.
    pub absent: AbsentNodes,
    /// The nodes that are connected to already, or will be.
    kept: Mutex<HashSet<Arc<str>>>,
}

impl Linker {
    pub(super) fn new(
        directory: Arc<Directory>,
        authority: &LocalAuthority,
        services: PeerServices,
    ) -> Result<Self, Error> {
        let tls = authority.node_tls(NODE_NAME, &ALPN)?;
        let (sessions, services) = (Arc::default(), Arc::new(services));
        let (absent, kept) = Default::default();
        Ok(Self { directory, sessions, services, tls, absent, kept })
    }

    /// Talks to a node that has connected, until it is gone.
    pub(super) async fn accept_node(self: Arc<Self>, connection: AcceptedConnection) {
        let AcceptedConnection { stream, peer, permit: _permit, .. } = connection;
        let accepted = tls::accept_tls(stream, self.tls.server.clone(), CONNECT_TIMEOUT).await;
        let stream = or_debug!(accepted, peer = %peer, "a TLS handshake of a node failed");
        let Some(stream) = stream else { return };
        let (mux, mut incoming) = MuxSession::start_with(Box::new(stream), Side::Service, LIMITS);
        let greeted = timeout(CONNECT_TIMEOUT, self.read_hello(&mut incoming)).await;
        let greeted = greeted.map_err(io::Error::from).flatten();
        match or_debug!(greeted, peer = %peer, "a node does not say which one it is") {
            Some(hello) => {
                self.serve_session(&hello.node_id, hello.protocol_version, mux, incoming).await
            }
            None => mux.close(),
        }
    }

    /// Waits for the first words of a node.
    async fn read_hello(&self, incoming: &mut Incoming) -> io::Result<Hello> {
        let mut stream = incoming.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        let said = read_kind(&mut stream).await?;
        if said != kind::HELLO {
            return Err(io::Error::other(format!("a stream of kind {said} comes first")));
        }
        let call = IncomingCall::read_message(said, stream).await.map_err(io::Error::other)?;
        let hello: Hello = call.decode_message().map_err(io::Error::other)?;
        let own = self.own_hello("");
        let error = match hello.to == own.node_id {
            true => String::new(),
            // An address that another node has now.
            false => format!("this is {} and not {}", own.node_id, hello.to),
        };
        let Hello { protocol_version, node_id, epoch, .. } = own;
        let answer = HelloAnswer { protocol_version, node_id, epoch, error: error.clone() };
        call.send_response(&answer).await.map_err(io::Error::other)?;
        if error.is_empty() { Ok(hello) } else { Err(io::Error::other(error)) }
    }

    /// Connects to a node, and talks to it until it is gone.
    async fn connect_node(self: &Arc<Self>, node: &KnownNode) -> io::Result<()> {
        let stream = timeout(CONNECT_TIMEOUT, self.dial_node(&node.record.peer_address)).await??;
        let (mux, incoming) = MuxSession::start_with(Box::new(stream), Side::Agent, LIMITS);
        let answer = rpc::call(&mux, &self.own_hello(&node.id), CONNECT_TIMEOUT).await;
        let HelloAnswer { protocol_version, error, .. } = answer.map_err(io::Error::other)?;
        if !error.is_empty() {
            mux.close();
            return Err(io::Error::other(error));
        }
        self.serve_session(&node.id, protocol_version, mux, incoming).await;
        Ok(())
    }

    async fn dial_node(
        &self,
        address: &str,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let place = HostPort::parse(address).map_err(|problem| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?} {problem}"))
        })?;
        let stream = dial_host(DialRole::Node, &place).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NODE_NAME).map_err(io::Error::other)?;
        TlsConnector::from(self.tls.client.clone()).connect(name, stream).await
    }

    fn own_hello(&self, to: &str) -> Hello {
        let (node_id, epoch) = self.directory.own_identity();
        Hello { protocol_version: PROTOCOL_VERSION, node_id, epoch, to: to.to_owned() }
    }

    /// Keeps a session until it is over.
    async fn serve_session(
        self: &Arc<Self>,
        node_id: &str,
        their_version: u32,
        mux: MuxSession,
        incoming: Incoming,
    ) {
        let (node_id, sessions): (Arc<str>, _) = (node_id.into(), self.sessions.clone());
        let key = format!("node {node_id}");
        let target = NodeTarget { sessions, node_id: node_id.clone(), key: key.clone() };
        let services = &self.services;
        let beat = heartbeat::start_steady(&mux, HEARTBEAT_INTERVAL, HEARTBEAT_TOLERANCE);
        let session = Arc::new(PeerSession {
            node_id: node_id.clone(),
            protocol_version: PROTOCOL_VERSION.min(their_version),
            mux: mux.clone(),
            target: Arc::new(target),
            latency: beat.watch_latency(),
            is_followed: AtomicBool::new(false),
        });
        self.sessions.add(session.clone());
        self.directory.record_session(&node_id, true);
        tracing::info!(node = %node_id, "connected to another node");
        let serving = ginnel_base::tasks::spawn(serve_streams(self.clone(), incoming));
        let telling = services
            .cluster
            .clone()
            .map(|it| ginnel_base::tasks::spawn(ended::send_ended_tunnels(it, mux.clone())));
        let err = mux.wait_until_ended().await;
        serving.abort();
        telling.iter().for_each(JoinHandle::abort);
        self.sessions.remove(&session);
        self.directory.record_session(&node_id, self.sessions.get(&node_id).is_some());
        services.gateway.close_idle(&key);
        tracing::info!(node = %node_id, %err, "the session with another node has ended");
    }

    /// The nodes to connect to that nobody takes care of yet: each two have one that connects.
    fn unlinked_nodes(&self) -> Vec<KnownNode> {
        let own = self.directory.own_identity().0;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = self.directory.nodes().into_iter();
        let linked = nodes.filter(|node| *own < *node.id && is_reachable(node));
        linked.filter(|node| kept.insert(node.id.clone())).collect()
    }

    /// Looks which nodes there should be a session with, and is none.
    fn update_absent(&self, now: Instant) {
        let own = self.directory.own_identity().0;
        let mut absent = self.directory.nodes();
        absent.retain(|node| {
            let is_expected = *node.id != *own && is_reachable(node) && !node.is_lapsed(now);
            is_expected && self.sessions.get(&node.id).is_none()
        });
        self.absent.record_absent(&absent, now);
    }

    fn forget_node(&self, node_id: &str) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(node_id);
    }
}

pub(super) fn is_reachable(node: &KnownNode) -> bool {
    node.state.is_serving() && !node.record.peer_address.is_empty()
}

/// Connects to all nodes, as they come.
pub(super) async fn keep_all_connected(linker: Weak<Linker>) {
    let Some(mut changes) = linker.upgrade().map(|linker| linker.directory.subscribe()) else {
        return;
    };
    loop {
        let Some(strong) = linker.upgrade() else { return };
        for node in strong.unlinked_nodes() {
            ginnel_base::tasks::spawn(keep_connected(linker.clone(), node.id));
        }
        strong.update_absent(Instant::now());
        // What only waits for a request must not keep agents at a node that is about to stop.
        strong
            .directory
            .leaving_tunnels()
            .iter()
            .for_each(|id| strong.services.gateway.close_idle(id));
        drop(strong);
        // The directory is gone with the node.
        if let Ok(Err(_)) = timeout(LOOK_INTERVAL, changes.changed()).await {
            return;
        }
    }
}

/// Connects to a node again and again, until it has ended.
async fn keep_connected(linker: Weak<Linker>, node_id: Arc<str>) {
    let mut backoff = MIN_BACKOFF;
    loop {
        let Some(strong) = linker.upgrade() else { return };
        let Some(node) = strong.directory.find_node(&node_id).filter(is_reachable) else {
            return strong.forget_node(&node_id);
        };
        match strong.connect_node(&node).await {
            Ok(()) => backoff = MIN_BACKOFF,
            Err(err) => {
                let address = &node.record.peer_address;
                let cause = format!("cannot connect to {address}: {err}");
                strong.absent.record_failure(&node, cause, Instant::now());
                tracing::debug!(node = %node_id, address, %err, "cannot connect to another node");
            }
        }
        drop(strong);
        sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}
