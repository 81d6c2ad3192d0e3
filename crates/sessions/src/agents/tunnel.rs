//! One tunnel of an agent, as public connections see it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderName;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use ginnel_api::Timestamp;

use ginnel_gateway::{
    BoxFuture, ConnectionBudget, ConnectionReuse, DialError, Io, RouteRef, Target,
    UpstreamProtocol, Visitor,
};
use ginnel_mux::protocol::message::ProxyHeader;
use ginnel_mux::protocol::proxy;
use ginnel_mux::{Code, Group, Stream};

use crate::agents::online_agent::OnlineAgent;
use crate::agents::proxy_protocol::ProxyVersion;
use crate::agents::tunnel_table::{Labeled, own_port, public_host};

/// For how long it leaves others theirs.
const POLITE_DELAY: Duration = Duration::from_millis(20);
/// How long closing idle connections may take, before anything else is done to make room.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A tunnel that is online.
pub struct OnlineTunnel {
    /// Unique identifier, `tn_` and 27 characters; also of its connections.
    pub id: String,
    /// What proxied connections name it by.
    pub bind_id: String,
    /// The session that offers it.
    pub session: Arc<OnlineAgent>,
    pub started_at: Timestamp,
    pub metadata: String,
    /// What it is for, as its agent says.
    pub description: String,
    pub forwards_to: String,
    /// What its connections take.
    pub speaks: UpstreamProtocol,
    pub kind: TunnelKind,
    pub life: Life,
}

/// Whether a tunnel may still carry something, and what it carries.
pub struct Life {
    stopped: AtomicBool,
    streams: Group,
}

impl Life {
    /// The life of a new tunnel of a session.
    pub fn new(session: &OnlineAgent) -> Self {
        Self { stopped: AtomicBool::new(false), streams: session.session.new_group() }
    }
}

/// How a tunnel is reached.
pub enum TunnelKind {
    /// At an address of its own.
    Endpoint {
        endpoint_id: Arc<str>,
        url: String,
        proto: String,
        proxy_proto: u8,
        pool: Option<String>,
    },
    /// Through edges, by its labels.
    Labeled(BTreeMap<String, String>),
}

impl Labeled for OnlineTunnel {
    fn id(&self) -> &str {
        &self.id
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match &self.kind {
            TunnelKind::Labeled(labels) => Some(labels),
            TunnelKind::Endpoint { .. } => None,
        }
    }
}

impl OnlineTunnel {
    /// Cuts off what the tunnel carries; it carries nothing any more.
    pub fn stop(&self) {
        // Before the streams are looked for: whoever opens one later than that sees it.
        self.life.stopped.store(true, Ordering::SeqCst);
        self.session.session.reset_group(self.life.streams, Code::CANCELLED);
    }

    /// True once the tunnel was stopped.
    pub fn is_stopped(&self) -> bool {
        self.life.stopped.load(Ordering::SeqCst)
    }

    /// What a person knows the tunnel by.
    pub fn public_name(&self) -> String {
        match &self.kind {
            TunnelKind::Endpoint { url, .. } => format!("{url:?}"),
            TunnelKind::Labeled(labels) => {
                let labels: Vec<_> =
                    labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("the labels {}", labels.join(", "))
            }
        }
    }

    /// The port that the tunnel has for itself; none where it has labels or a name.
    pub fn own_port(&self) -> Option<u16> {
        let TunnelKind::Endpoint { url, .. } = &self.kind else { return None };
        own_port(url)
    }

    /// The host name that the tunnel has in public; none where it has labels, an address or a name
    /// that only policies lead to.
    pub fn host(&self) -> Option<&str> {
        let TunnelKind::Endpoint { url, .. } = &self.kind else { return None };
        public_host(url)
    }

    fn proxy_version(&self) -> Option<ProxyVersion> {
        match self.kind {
            TunnelKind::Endpoint { proxy_proto, .. } => ProxyVersion::from_number(proxy_proto),
            TunnelKind::Labeled(_) => None,
        }
    }

    fn proxy_header(&self, visitor: &Visitor, through: &RouteRef) -> ProxyHeader {
        let edge_type = match (&self.kind, visitor.proto) {
            (TunnelKind::Endpoint { .. }, _) => "0",
            (TunnelKind::Labeled(_), "tcp") => "1",
            (TunnelKind::Labeled(_), "tls") => "2",
            (TunnelKind::Labeled(_), _) => "3",
        };
        ProxyHeader {
            id: self.bind_id.clone(),
            client_addr: visitor.peer.to_string(),
            proto: visitor.proto.to_owned(),
            edge_type: edge_type.to_owned(),
            passthrough_tls: visitor.passthrough,
            edge_id: through.edge_id.to_string(),
            route_id: through.route_id.to_string(),
        }
    }

    fn is_full(&self) -> bool {
        self.session.session.open_streams() >= self.session.streams.max_streams()
    }

    /// Opens a stream; none when there are as many as there may be.
    async fn try_open(
        &self,
        header: &ProxyHeader,
        address: IpAddr,
    ) -> Result<Option<Stream>, DialError> {
        // Many may wait, and making the first frame is most of the work.
        if self.is_full() || self.session.shares.is_preceded(address) {
            return Ok(None);
        }
        let OnlineAgent { session, shares, counts, streams, .. } = self.session.as_ref();
        let opened =
            proxy::open_proxy(session, streams.max_streams(), Some(self.life.streams), header)
                .await;
        let stream = opened.map_err(|_| DialError::Offline)?;
        if let Some(stream) = &stream {
            shares.add_stream(address, stream, matches!(header.proto.as_str(), "http" | "https"));
            counts.stream_opened();
        }
        Ok(stream)
    }

    /// Opens a stream as soon as there are fewer than there may be.
    async fn open_in_turn(
        &self,
        header: &ProxyHeader,
        address: IpAddr,
    ) -> Result<Stream, DialError> {
        if let Some(stream) = self.try_open(header, address).await? {
            return Ok(stream);
        }
        let OnlineAgent { budget, shares, streams, .. } = self.session.as_ref();
        let (waiting, _turn) = (budget.add_waiter(), shares.register_waiting(address));
        let polite = if waiting.has_closed_idle { CLOSE_TIMEOUT } else { POLITE_DELAY };
        let limit = match waiting.has_closed_idle {
            true => streams.queue_timeout.max(CLOSE_TIMEOUT),
            false => streams.queue_timeout,
        };
        let start = Instant::now();
        loop {
            if let Some(stream) = self.try_open(header, address).await? {
                return Ok(stream);
            }
            match start.elapsed() {
                waited if waited >= limit => return Err(DialError::Busy),
                waited if waited >= polite && shares.make_room(address) => {}
                _ => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    async fn open_stream(&self, visitor: &Visitor, through: &RouteRef) -> Result<Io, DialError> {
        let header = self.proxy_header(visitor, through);
        let mut stream = self.open_in_turn(&header, visitor.peer.ip()).await?;
        if self.is_stopped() {
            stream.reset(Code::CANCELLED);
            return Err(DialError::Offline);
        }
        if let Some(version) = self.proxy_version() {
            let header = version.encode_header(visitor.peer, visitor.local);
            stream.write_all(&header).await.map_err(|_| DialError::Offline)?;
        }
        Ok(Box::new(stream))
    }
}

impl Target for OnlineTunnel {
    fn key(&self) -> &str {
        &self.id
    }

    fn reuse(&self) -> ConnectionReuse {
        if self.proxy_version().is_some() {
            ConnectionReuse::Nobody
        } else {
            ConnectionReuse::SameAddress
        }
    }

    fn protocol(&self) -> UpstreamProtocol {
        self.speaks
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn rules_header(&self) -> Option<&HeaderName> {
        let header = self.session.rules_header.as_ref();
        header.filter(|_| self.speaks == UpstreamProtocol::Http1)
    }

    fn endpoint_id(&self) -> Option<&Arc<str>> {
        match &self.kind {
            TunnelKind::Endpoint { endpoint_id, .. } => Some(endpoint_id),
            TunnelKind::Labeled(_) => None,
        }
    }

    fn connection_budget(&self) -> Option<Arc<ConnectionBudget>> {
        Some(self.session.budget.clone())
    }

    fn queue_timeout(&self) -> Duration {
        self.session.streams.queue_timeout
    }

    fn may_idle(&self) -> bool {
        // A visitor from another address would have to wait until one of them is closed.
        self.session.session.open_streams() <= self.session.streams.max_streams() / 4 * 3
    }

    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        through: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>> {
        Box::pin(self.open_stream(visitor, through))
    }
}
