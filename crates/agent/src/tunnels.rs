//! The tunnels that the agent runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ServerConfig;
use tokio::sync::watch;

use ginnel_api::local::tunnels::{AgentTunnel, AgentTunnelConfig};
use ginnel_base::address::{EndpointUrl, Host, Scheme};
use ginnel_base::logging::or_debug;
use ginnel_mux::Stream;
use ginnel_mux::protocol::message::{BindOpts, Hidden};
use ginnel_net::{
    HANDSHAKE_TIMEOUT, Shutdown, ShutdownPhase, ShutdownSignal, is_reset_at_once, tls,
};

use super::capture::{CaptureSource, Via};
use super::definition::Definition;
use super::metrics::TunnelMetrics;
use super::relay::{
    Activity, BoxReader, BoxWriter, HttpForwarder, LocalStream, LocalUpstream, copy_bidirectional,
    serve_connection,
};
use super::slot::{PerSlot, SessionSlot};

/// Everything in a name but the unreserved characters of RFC 3986.
pub(crate) const PATH_SEGMENT_CHARS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How long a connection must have carried no request before a tunnel that ends closes it. Our own
/// service closes those it keeps for later requests; others may not.
const MIN_IDLE_TIME: Duration = Duration::from_millis(50);

/// A tunnel that runs.
#[derive(Debug)]
pub struct RunningTunnel {
    /// 32 hexadecimal digits.
    pub id: String,
    /// Its name; unique among those that run.
    pub name: String,
    /// What it was started with.
    pub definition: Arc<Definition>,
    /// The protocol of its bind; none for a labeled tunnel.
    pub proto: Option<&'static str>,
    /// The options of its bind.
    pub options: BindOpts,
    /// What it has carried.
    pub metrics: Arc<TunnelMetrics>,
    /// How its connections are served.
    pub service: LocalService,
    binding: Mutex<TunnelBinding>,
    /// Each of its connections holds a signal.
    shutdown: Shutdown,
}

/// Whether visitors can reach a tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TunnelStatus {
    /// It is being started.
    #[default]
    Connecting,
    /// They can.
    Online,
    /// They cannot, for this reason, and the agent tries to change that.
    Reconnecting(String),
    /// They cannot, and will not: the service refuses the agent.
    Offline(String),
    /// The agent ends; only those are served who came before.
    Stopping,
}

impl std::fmt::Display for TunnelStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Online => f.write_str("online"),
            Self::Reconnecting(reason) => write!(f, "reconnecting: {reason}"),
            Self::Offline(reason) => write!(f, "offline: {reason}"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// How connections are served.
#[derive(Debug)]
pub enum LocalService {
    /// Request by request.
    Http(HttpForwarder),
    /// Byte by byte.
    Bytes(LocalUpstream),
}

/// Where visitors reach a tunnel.
#[derive(Debug, Default)]
struct TunnelBinding {
    /// The public address, the same in all sessions; none for a labeled tunnel.
    url: Option<String>,
    binds: PerSlot<SessionBind>,
    status: TunnelStatus,
}

/// What one session has of a tunnel.
#[derive(Debug, Default)]
struct SessionBind {
    /// What the service gave last, which stays reserved for it.
    id: String,
    token: Hidden,
    /// Visitors reach the tunnel over this session.
    is_bound: bool,
}

/// What the service gave for a bind.
#[derive(Debug, Clone, Default)]
pub(super) struct BoundEndpoint {
    /// What the service names it by; empty before it is bound.
    pub id: String,
    /// What proves that it is ours; empty for a labeled tunnel.
    pub token: Hidden,
    /// The public address; none for a labeled tunnel.
    pub url: Option<String>,
}

/// The tunnels that the agent runs, in the order of their start.
#[derive(Debug, Default)]
pub struct Tunnels {
    list: Mutex<Vec<Arc<RunningTunnel>>>,
    /// Counted up when a tunnel is to be bound in a session that has none of its binds.
    due: watch::Sender<u64>,
}

impl RunningTunnel {
    pub(super) fn new(
        name: String,
        definition: Arc<Definition>,
        proto: Option<&'static str>,
        options: BindOpts,
        service: LocalService,
        metrics: Arc<TunnelMetrics>,
    ) -> Result<Self, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let id = ginnel_base::hex(id);
        let (binding, shutdown) = Default::default();
        Ok(Self { id, name, definition, proto, options, metrics, service, binding, shutdown })
    }

    /// The public address; none before it is known, and for a labeled tunnel.
    pub fn public_url(&self) -> Option<String> {
        self.lock_binding().url.clone()
    }

    /// What to name at the next bind in a session: what the service gave there, else in the other one.
    pub(super) fn reserved_endpoint(&self, slot: SessionSlot) -> BoundEndpoint {
        let binding = self.lock_binding();
        let (own, other) = (binding.binds.get(slot), binding.binds.get(slot.other()));
        let last = if own.id.is_empty() { other } else { own };
        let (id, token) = (last.id.clone(), last.token.clone());
        BoundEndpoint { id, token, url: binding.url.clone() }
    }

    /// What the service names it by in a session, where it is bound there.
    pub(super) fn bind_id(&self, slot: SessionSlot) -> Option<String> {
        let binding = self.lock_binding();
        Some(binding.binds.get(slot)).filter(|bind| bind.is_bound).map(|bind| bind.id.clone())
    }

    /// Whether visitors reach it over the session in a slot.
    pub(super) fn is_bound(&self, slot: SessionSlot) -> bool {
        self.lock_binding().binds.get(slot).is_bound
    }

    /// Whether it was bound in some session before.
    pub(super) fn is_started(&self) -> bool {
        self.lock_binding().status != TunnelStatus::Connecting
    }

    /// Notes that visitors reach it over a session; false if they reach it at another address over the
    /// other one, which it keeps.
    pub(super) fn set_bound(&self, slot: SessionSlot, bound: BoundEndpoint) -> bool {
        let mut binding = self.lock_binding();
        let has_other = binding.binds.get(slot.other()).is_bound;
        let is_elsewhere =
            has_other && address_identity(&binding.url) != address_identity(&bound.url);
        let bind = binding.binds.get_mut(slot);
        if is_elsewhere {
            *bind = SessionBind::default();
            return false;
        }
        *bind = SessionBind { id: bound.id, token: bound.token, is_bound: true };
        if !has_other {
            binding.url = bound.url;
        }
        binding.status = TunnelStatus::Online;
        true
    }

    /// Notes why visitors do not reach it over a session for now; what the service gave stays reserved.
    pub(super) fn set_unbound(&self, slot: SessionSlot, reason: &str) {
        let mut binding = self.lock_binding();
        binding.binds.get_mut(slot).is_bound = false;
        // One that is being started is for its starter to speak of.
        let is_started = binding.status != TunnelStatus::Connecting;
        if is_started && !binding.binds.get(slot.other()).is_bound {
            binding.status = TunnelStatus::Reconnecting(reason.to_owned());
        }
    }

    /// Whether visitors can reach it.
    pub fn status(&self) -> TunnelStatus {
        self.lock_binding().status.clone()
    }

    /// Notes why the service refuses the agent.
    pub(super) fn set_refused(&self, reason: &str) {
        self.lock_binding().status = TunnelStatus::Offline(reason.to_owned());
    }

    /// Notes that it takes no new visitors.
    pub(super) fn set_stopping(&self) {
        self.lock_binding().status = TunnelStatus::Stopping;
    }

    fn lock_binding(&self) -> MutexGuard<'_, TunnelBinding> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its connections.
    pub(super) fn stop(&self) {
        self.shutdown.begin_phase(ShutdownPhase::Forced);
    }

    /// Lets its connections finish what they carry, and no more.
    pub(super) fn start_drain(&self) {
        self.shutdown.begin_phase(ShutdownPhase::Graceful);
    }

    /// For what ends with it.
    pub(super) fn shutdown_signal(&self) -> ShutdownSignal {
        self.shutdown.signal()
    }

    /// For a request that no visitor waits for.
    pub(super) fn detached_activity(&self) -> Activity<'_> {
        Activity::without_visitor(&self.shutdown)
    }

    /// Waits until it has no connections.
    pub(super) async fn wait_until_finished(&self) {
        self.shutdown.wait_until_finished().await;
    }

    /// Serves one connection of a visitor until it ends, or the tunnel does; its TLS, if it has any, may
    /// have ended at the service.
    pub(super) async fn serve_connection(
        &self,
        stream: Stream,
        source: CaptureSource,
        has_ended_tls: bool,
    ) {
        let opened = Instant::now();
        self.metrics.connection_opened(opened);
        let mut shutdown = self.shutdown.signal();
        let activity = Activity::new(&self.shutdown, stream.watch());
        let (read, write) = stream.into_split();
        let visitor: (BoxReader, BoxWriter) = (Box::pin(read), Box::pin(write));
        tokio::select! {
            () = self.forward_connection(visitor, source, has_ended_tls, &activity) => {}
            () = wait_until_over(&mut shutdown, &activity) => {}
        }
        let closed = Instant::now();
        self.metrics.connection_closed(closed.duration_since(opened), closed);
    }

    async fn forward_connection(
        &self,
        visitor: (BoxReader, BoxWriter),
        source: CaptureSource,
        has_ended_tls: bool,
        activity: &Activity<'_>,
    ) {
        if matches!(self.service, LocalService::Bytes(_)) {
            activity.begin_turn();
        }
        let plain = match self.definition.ends_tls.as_ref().filter(|_| !has_ended_tls) {
            Some(config) => accept_tls(config, visitor).await,
            None => Some(visitor),
        };
        if let Some(plain) = plain {
            self.forward_plain(plain, source, activity).await;
        }
    }

    async fn forward_plain(
        &self,
        (mut read, mut write): (BoxReader, BoxWriter),
        source: CaptureSource,
        activity: &Activity<'_>,
    ) {
        let upstream = match &self.service {
            // An edge for bytes promises nothing about them.
            LocalService::Http(front) if source.via == Some(Via::Edge) => &front.upstream,
            LocalService::Http(front) => {
                return serve_connection(front, (read, write), source, activity).await;
            }
            LocalService::Bytes(upstream) => upstream,
        };
        activity.begin_turn();
        // A service that is away ends the stream without a byte; the visitor learns of it.
        let connected = upstream.connect_for_bytes().await;
        if connected.as_ref().is_err_and(is_reset_at_once) {
            activity.reset_stream();
        }
        let connected =
            or_debug!(connected, tunnel = %self.name, "cannot connect to the local service");
        let Some(connected) = connected else { return };
        let LocalStream { read: mut from, write: mut to, reset, .. } = connected;
        let visitor = (&mut read, &mut write);
        let copied = copy_bidirectional(visitor, activity, (&mut from, &mut to), &reset).await;
        or_debug!(copied, tunnel = %self.name, "a connection broke");
    }

    /// The tunnel as the agent API shows it.
    pub fn to_agent_tunnel(&self) -> AgentTunnel {
        let url = self.public_url();
        let proto = url.as_deref().and_then(|url| url.split(':').next()).or(self.proto);
        AgentTunnel {
            ID: Some(self.id.clone()),
            name: self.name.clone(),
            uri: format!("/api/tunnels/{}", utf8_percent_encode(&self.name, PATH_SEGMENT_CHARS)),
            proto: proto.unwrap_or_default().to_owned(),
            public_url: url.unwrap_or_default(),
            pooling_enabled: Some(self.definition.pooling),
            status: Some(self.status().to_string()),
            config: AgentTunnelConfig {
                addr: self.definition.address.to_string(),
                inspect: self.is_inspected(),
            },
            metrics: self.metrics.report(Instant::now()),
        }
    }

    /// The local service that the tunnel leads to.
    pub fn upstream(&self) -> &LocalUpstream {
        match &self.service {
            LocalService::Http(forwarder) => &forwarder.upstream,
            LocalService::Bytes(upstream) => upstream,
        }
    }

    /// Whether requests are captured.
    pub fn is_inspected(&self) -> bool {
        matches!(&self.service, LocalService::Http(front) if front.captures.is_some())
    }
}

/// What has to be the same in all sessions of a public address. Each node may have other ports, before
/// which something else stands: where names tell tunnels apart, ports do not. The address of numbers is that
/// of the node itself: there it is the port that tells them apart.
fn address_identity(url: &Option<String>) -> Option<(Option<String>, Option<u16>)> {
    let url = EndpointUrl::parse(url.as_deref()?).ok()?;
    Some(match (&url.host, url.scheme) {
        (Host::V4(_) | Host::V6(_), _) => (None, url.port),
        (Host::Name(_), Scheme::Tcp) => (Some(url.host_pattern()), url.port),
        (Host::Name(_), _) => (Some(url.host_pattern()), None),
    })
}

/// Waits until a connection must end: at once, or as soon as it carries nothing.
async fn wait_until_over(shutdown: &mut ShutdownSignal, activity: &Activity<'_>) {
    shutdown.wait_for(ShutdownPhase::Graceful).await;
    let idle = async { while !activity.is_idle_for(MIN_IDLE_TIME).await {} };
    shutdown.run_until(ShutdownPhase::Forced, idle).await;
}

/// What a visitor says, without the TLS that ends here; none where there is no agreement.
async fn accept_tls(
    config: &Arc<ServerConfig>,
    (read, write): (BoxReader, BoxWriter),
) -> Option<(BoxReader, BoxWriter)> {
    let stream =
        tls::accept_tls(tokio::io::join(read, write), config.clone(), HANDSHAKE_TIMEOUT).await;
    let stream = or_debug!(stream, "a TLS handshake of a visitor failed")?;
    let (read, write) = tokio::io::split(stream);
    Some((Box::pin(read), Box::pin(write)))
}

impl Tunnels {
    /// The tunnels, oldest first.
    pub fn all(&self) -> Vec<Arc<RunningTunnel>> {
        self.lock_tunnels().clone()
    }

    /// The tunnel of this name.
    pub fn find(&self, name: &str) -> Option<Arc<RunningTunnel>> {
        self.lock_tunnels().iter().find(|tunnel| tunnel.name == name).cloned()
    }

    /// The tunnel that the service names so.
    pub(super) fn bound_as(&self, id: &str) -> Option<Arc<RunningTunnel>> {
        let is_it = |tunnel: &RunningTunnel| {
            tunnel.lock_binding().binds.iter().any(|bind| bind.id == id && !id.is_empty())
        };
        self.lock_tunnels().iter().find(|tunnel| is_it(tunnel)).cloned()
    }

    /// Whether this very tunnel still runs.
    pub(super) fn is_running(&self, tunnel: &Arc<RunningTunnel>) -> bool {
        self.lock_tunnels().iter().any(|other| Arc::ptr_eq(other, tunnel))
    }

    /// Gets a new value whenever a tunnel is to be bound in a session.
    pub(super) fn subscribe_due(&self) -> watch::Receiver<u64> {
        self.due.subscribe()
    }

    /// Has tunnels bound in the sessions in which they are not: one is bound in a first session, or has lost
    /// its bind.
    pub(super) fn bind_again(&self) {
        self.due.send_modify(|due| *due += 1);
    }

    /// Adds a tunnel unless one of its name runs.
    pub(super) fn add(&self, tunnel: &Arc<RunningTunnel>) -> bool {
        let mut tunnels = self.lock_tunnels();
        if tunnels.iter().any(|other| other.name == tunnel.name) {
            return false;
        }
        tunnels.push(tunnel.clone());
        true
    }

    /// Takes a tunnel out and ends its connections.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<RunningTunnel>> {
        let mut tunnels = self.lock_tunnels();
        let at = tunnels.iter().position(|tunnel| tunnel.name == name)?;
        let tunnel = tunnels.remove(at);
        tunnel.stop();
        Some(tunnel)
    }

    fn lock_tunnels(&self) -> MutexGuard<'_, Vec<Arc<RunningTunnel>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
