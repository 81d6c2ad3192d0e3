//! The tunnels that the agent runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::capture::{Source, Via};
use super::definition::Definition;
use super::metrics::TunnelMetrics;
use super::relay::{Front, Reader, Upstream, Writer, copy, serve};
use crate::api::local::tunnels::{AgentTunnel, AgentTunnelConfig};
use crate::tunnel::message::{BindOpts, Hidden};

/// Everything in a name but the unreserved characters of RFC 3986.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How long a visitor's TLS may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tunnel that runs.
#[derive(Debug)]
pub struct Running {
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
    pub service: Service,
    bound: Mutex<Bound>,
    /// True once it is stopped; its connections end then.
    stopped: watch::Sender<bool>,
}

/// How connections are served.
#[derive(Debug)]
pub enum Service {
    /// Request by request.
    Http(Front),
    /// Byte by byte.
    Bytes(Upstream),
}

/// What the service gave for a bind.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    /// What the service names it by; empty before it is bound.
    pub id: String,
    /// What proves that it is ours.
    pub token: Hidden,
    /// The public address; none for a labeled tunnel.
    pub url: Option<String>,
}

/// The tunnels that the agent runs, in the order of their start.
#[derive(Debug, Default)]
pub struct Tunnels(Mutex<Vec<Arc<Running>>>);

impl Running {
    pub(super) fn new(
        name: String,
        definition: Arc<Definition>,
        proto: Option<&'static str>,
        options: BindOpts,
        service: Service,
        metrics: Arc<TunnelMetrics>,
    ) -> Result<Self, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (bound, stopped) = (Mutex::default(), watch::Sender::new(false));
        Ok(Self { id, name, definition, proto, options, metrics, service, bound, stopped })
    }

    /// What the service gave for it.
    pub fn bound(&self) -> Bound {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_bound(&self, bound: Bound) {
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = bound;
    }

    /// Ends its connections.
    pub(super) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Serves one connection of a visitor until it ends, or the tunnel is stopped.
    pub(super) async fn serve(&self, visitor: (Reader, Writer), source: Source) {
        let opened = Instant::now();
        self.metrics.connection_opened(opened);
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            () = self.carry(visitor, source) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
        let closed = Instant::now();
        self.metrics.connection_closed(closed.duration_since(opened), closed);
    }

    async fn carry(&self, visitor: (Reader, Writer), source: Source) {
        // Where the service looks at requests, it has ended their TLS.
        let ends_tls = self.definition.ends_tls.as_ref();
        let plain = match ends_tls.filter(|_| source.via != Some(Via::HttpsEdge)) {
            Some(config) => unwrapped(config, visitor).await,
            None => Some(visitor),
        };
        if let Some(plain) = plain {
            self.carry_plain(plain, source).await;
        }
    }

    async fn carry_plain(&self, (mut read, mut write): (Reader, Writer), source: Source) {
        let upstream = match &self.service {
            // An edge for bytes promises nothing about them.
            Service::Http(front) if source.via == Some(Via::Edge) => &front.upstream,
            Service::Http(front) => return serve(front, (read, write), source).await,
            Service::Bytes(upstream) => upstream,
        };
        // A service that is away ends the stream without a byte; the visitor learns of it.
        let Ok(connected) = upstream.connect_for_bytes().await else { return };
        let (mut from, mut to) = (connected.read, connected.write);
        let _ = copy((&mut read, &mut write), (&mut from, &mut to)).await;
    }

    /// The tunnel as the agent API shows it.
    pub fn show(&self) -> AgentTunnel {
        let url = self.bound().url;
        let proto = url.as_deref().and_then(|url| url.split(':').next()).or(self.proto);
        AgentTunnel {
            ID: Some(self.id.clone()),
            name: self.name.clone(),
            uri: format!("/api/tunnels/{}", utf8_percent_encode(&self.name, NAME)),
            proto: proto.unwrap_or_default().to_owned(),
            public_url: url.unwrap_or_default(),
            config: AgentTunnelConfig {
                addr: self.definition.address.shown(),
                inspect: self.inspects(),
            },
            metrics: self.metrics.report(Instant::now()),
        }
    }

    /// Whether requests are captured.
    pub fn inspects(&self) -> bool {
        matches!(&self.service, Service::Http(front) if front.captures.is_some())
    }
}

/// What a visitor says, without the TLS that ends here; none where there is no agreement.
async fn unwrapped(
    config: &Arc<ServerConfig>,
    (read, write): (Reader, Writer),
) -> Option<(Reader, Writer)> {
    let shaking = TlsAcceptor::from(config.clone()).accept(tokio::io::join(read, write));
    let stream = tokio::time::timeout(PATIENCE, shaking).await.ok()?.ok()?;
    let (read, write) = tokio::io::split(stream);
    Some((Box::pin(read), Box::pin(write)))
}

impl Tunnels {
    /// The tunnels, oldest first.
    pub fn all(&self) -> Vec<Arc<Running>> {
        self.lock().clone()
    }

    /// The tunnel of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Running>> {
        self.lock().iter().find(|tunnel| tunnel.name == name).cloned()
    }

    /// The tunnel that the service names so.
    pub(super) fn bound_as(&self, id: &str) -> Option<Arc<Running>> {
        self.lock().iter().find(|tunnel| tunnel.bound().id == id).cloned()
    }

    /// Whether this very tunnel still runs.
    pub(super) fn has(&self, tunnel: &Arc<Running>) -> bool {
        self.lock().iter().any(|other| Arc::ptr_eq(other, tunnel))
    }

    /// Adds a tunnel unless one of its name runs.
    pub(super) fn add(&self, tunnel: &Arc<Running>) -> bool {
        let mut tunnels = self.lock();
        if tunnels.iter().any(|other| other.name == tunnel.name) {
            return false;
        }
        tunnels.push(tunnel.clone());
        true
    }

    /// Takes a tunnel out and ends its connections.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Running>> {
        let mut tunnels = self.lock();
        let at = tunnels.iter().position(|tunnel| tunnel.name == name)?;
        let tunnel = tunnels.remove(at);
        tunnel.stop();
        Some(tunnel)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
