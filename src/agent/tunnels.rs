//! The tunnels that the agent runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ServerConfig;

use super::capture::{CaptureSource, Via};
use super::definition::Definition;
use super::metrics::TunnelMetrics;
use super::relay::{Activity, BoxReader, BoxWriter, HttpForwarder, LocalUpstream, copy, serve};
use crate::api::local::tunnels::{AgentTunnel, AgentTunnelConfig};
use crate::logging::or_debug;
use crate::mux::Stream;
use crate::net::{HANDSHAKE_TIMEOUT, Shutdown, ShutdownPhase, ShutdownSignal, tls};
use crate::protocol::message::{BindOpts, Hidden};

/// Everything in a name but the unreserved characters of RFC 3986.
const PATH_SEGMENT_CHARS: &AsciiSet =
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
    bound: Mutex<BoundEndpoint>,
    status: Mutex<TunnelStatus>,
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

/// What the service gave for a bind.
#[derive(Debug, Clone, Default)]
pub struct BoundEndpoint {
    /// What the service names it by; empty before it is bound.
    pub id: String,
    /// What proves that it is ours.
    pub token: Hidden,
    /// The public address; none for a labeled tunnel.
    pub url: Option<String>,
}

/// The tunnels that the agent runs, in the order of their start.
#[derive(Debug, Default)]
pub struct Tunnels(Mutex<Vec<Arc<RunningTunnel>>>);

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
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (bound, status) = (Mutex::default(), Mutex::default());
        let shutdown = Shutdown::default();
        Ok(Self { id, name, definition, proto, options, metrics, service, bound, status, shutdown })
    }

    /// What the service gave for it.
    pub fn bound(&self) -> BoundEndpoint {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_bound(&self, bound: BoundEndpoint) {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = bound;
    }

    /// Whether visitors can reach it.
    pub fn status(&self) -> TunnelStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_status(&self, status: TunnelStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Notes that visitors can reach it.
    pub(super) fn set_online(&self) {
        self.set_status(TunnelStatus::Online);
    }

    /// Notes why visitors cannot reach it for now; what the service gave stays reserved for it.
    pub(super) fn set_reconnecting(&self, reason: &str) {
        self.set_status(TunnelStatus::Reconnecting(reason.to_owned()));
    }

    /// Notes why the service refuses the agent.
    pub(super) fn set_refused(&self, reason: &str) {
        self.set_status(TunnelStatus::Offline(reason.to_owned()));
    }

    /// Notes that it takes no new visitors.
    pub(super) fn set_stopping(&self) {
        self.set_status(TunnelStatus::Stopping);
    }

    /// Ends its connections.
    pub(super) fn stop(&self) {
        self.shutdown.begin(ShutdownPhase::Forced);
    }

    /// Lets its connections finish what they carry, and no more.
    pub(super) fn finish(&self) {
        self.shutdown.begin(ShutdownPhase::Graceful);
    }

    /// Waits until it has no connections.
    pub(super) async fn finished(&self) {
        self.shutdown.finished().await;
    }

    /// Serves one connection of a visitor until it ends, or the tunnel does.
    pub(super) async fn serve(&self, stream: Stream, source: CaptureSource) {
        let opened = Instant::now();
        self.metrics.connection_opened(opened);
        let mut shutdown = self.shutdown.signal();
        let activity = Activity::new(&self.shutdown, stream.watch());
        let (read, write) = stream.into_split();
        let visitor: (BoxReader, BoxWriter) = (Box::pin(read), Box::pin(write));
        tokio::select! {
            () = self.forward(visitor, source, &activity) => {}
            () = wait_until_over(&mut shutdown, &activity) => {}
        }
        let closed = Instant::now();
        self.metrics.connection_closed(closed.duration_since(opened), closed);
    }

    async fn forward(
        &self,
        visitor: (BoxReader, BoxWriter),
        source: CaptureSource,
        activity: &Activity<'_>,
    ) {
        if matches!(self.service, LocalService::Bytes(_)) {
            activity.begin();
        }
        // Where the service looks at requests, it has ended their TLS.
        let ends_tls = self.definition.ends_tls.as_ref();
        let plain = match ends_tls.filter(|_| source.via != Some(Via::HttpsEdge)) {
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
                return serve(front, (read, write), source, activity).await;
            }
            LocalService::Bytes(upstream) => upstream,
        };
        activity.begin();
        // A service that is away ends the stream without a byte; the visitor learns of it.
        let connected = upstream.connect_for_bytes().await;
        let connected =
            or_debug!(connected, tunnel = %self.name, "cannot connect to the local service");
        let Some(connected) = connected else { return };
        let (mut from, mut to) = (connected.read, connected.write);
        let copied = copy((&mut read, &mut write), (&mut from, &mut to)).await;
        or_debug!(copied, tunnel = %self.name, "a connection broke");
    }

    /// The tunnel as the agent API shows it.
    pub fn show(&self) -> AgentTunnel {
        let url = self.bound().url;
        let proto = url.as_deref().and_then(|url| url.split(':').next()).or(self.proto);
        AgentTunnel {
            ID: Some(self.id.clone()),
            name: self.name.clone(),
            uri: format!("/api/tunnels/{}", utf8_percent_encode(&self.name, PATH_SEGMENT_CHARS)),
            proto: proto.unwrap_or_default().to_owned(),
            public_url: url.unwrap_or_default(),
            status: Some(self.status().to_string()),
            config: AgentTunnelConfig {
                addr: self.definition.address.shown(),
                inspect: self.inspects(),
            },
            metrics: self.metrics.report(Instant::now()),
        }
    }

    /// Whether requests are captured.
    pub fn inspects(&self) -> bool {
        matches!(&self.service, LocalService::Http(front) if front.captures.is_some())
    }
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
    let stream = tls::accept(tokio::io::join(read, write), config.clone(), HANDSHAKE_TIMEOUT).await;
    let stream = or_debug!(stream, "a TLS handshake of a visitor failed")?;
    let (read, write) = tokio::io::split(stream);
    Some((Box::pin(read), Box::pin(write)))
}

impl Tunnels {
    /// The tunnels, oldest first.
    pub fn all(&self) -> Vec<Arc<RunningTunnel>> {
        self.lock().clone()
    }

    /// The tunnel of this name.
    pub fn find(&self, name: &str) -> Option<Arc<RunningTunnel>> {
        self.lock().iter().find(|tunnel| tunnel.name == name).cloned()
    }

    /// The tunnel that the service names so.
    pub(super) fn bound_as(&self, id: &str) -> Option<Arc<RunningTunnel>> {
        self.lock().iter().find(|tunnel| tunnel.bound().id == id).cloned()
    }

    /// Whether this very tunnel still runs.
    pub(super) fn has(&self, tunnel: &Arc<RunningTunnel>) -> bool {
        self.lock().iter().any(|other| Arc::ptr_eq(other, tunnel))
    }

    /// Adds a tunnel unless one of its name runs.
    pub(super) fn add(&self, tunnel: &Arc<RunningTunnel>) -> bool {
        let mut tunnels = self.lock();
        if tunnels.iter().any(|other| other.name == tunnel.name) {
            return false;
        }
        tunnels.push(tunnel.clone());
        true
    }

    /// Takes a tunnel out and ends its connections.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<RunningTunnel>> {
        let mut tunnels = self.lock();
        let at = tunnels.iter().position(|tunnel| tunnel.name == name)?;
        let tunnel = tunnels.remove(at);
        tunnel.stop();
        Some(tunnel)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<RunningTunnel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
