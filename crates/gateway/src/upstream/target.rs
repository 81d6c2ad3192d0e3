//! Where public connections go.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::HeaderName;

use ginnel_net::is_reset_at_once;

use crate::Io;
use crate::upstream::budget::ConnectionBudget;

/// A future that can be kept behind a trait.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something a public connection can be forwarded to.
pub trait Target: Send + Sync + 'static {
    /// Distinguishes targets whose connections may be reused for each other's requests.
    fn key(&self) -> &str;

    /// Whose request may follow on a connection when an HTTP exchange has finished.
    fn reuse(&self) -> ConnectionReuse;

    /// What HTTP requests are spoken with on the connections.
    fn protocol(&self) -> UpstreamProtocol {
        UpstreamProtocol::Http1
    }

    /// Whether an agent takes the connections, who may not reach what it forwards to: it says so in
    /// an answer, or closes without one.
    fn is_agent(&self) -> bool {
        false
    }

    /// Whether another node takes the connections as it takes those of its own visitors: requests go
    /// there as they came, and their responses come back complete.
    fn is_node(&self) -> bool {
        false
    }

    /// The header in which its agent wants to read which rules of policies acted on a request; none where
    /// it does not.
    fn rules_header(&self) -> Option<&HeaderName> {
        None
    }

    /// The identifier of the endpoint that an agent has at a public address; none for other targets.
    fn endpoint_id(&self) -> Option<&Arc<str>> {
        None
    }

    /// The room for connections that it shares with others; none where it has no limit.
    fn budget(&self) -> Option<Arc<ConnectionBudget>> {
        None
    }

    /// How long a visitor may wait for room, before a connection is opened.
    fn queue_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a connection that has carried a request may wait for another.
    fn may_idle(&self) -> bool {
        true
    }

    /// Opens a connection for this visitor, who came this way.
    fn dial<'a>(
        &'a self,
        visitor: &'a Visitor,
        route_ref: &'a RouteRef,
    ) -> BoxFuture<'a, Result<Io, DialError>>;
}

/// Who may use a connection after its first exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// Nobody: the connection names the port of its visitor as well, as with the PROXY protocol.
    Nobody,
    /// Visitors from the same address who came the same way: the connection names both.
    SameAddress,
    /// The requests of one connection of a visitor: the connection names all of it, ports and TLS too.
    SameVisitor,
    /// Everybody.
    Everybody,
}

/// What led a visitor to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRef {
    /// The identifier of the edge; empty for the endpoint of an agent.
    pub edge_id: Arc<str>,
    /// The identifier of the route; empty where there is none to choose.
    pub route_id: Arc<str>,
}

impl RouteRef {
    /// What the route belongs to, which is the same for all routes of a host: its edge, or the endpoint.
    pub fn owner(&self) -> &Arc<str> {
        if self.edge_id.is_empty() { &self.route_id } else { &self.edge_id }
    }

    /// Of what no edge has led here.
    pub fn none() -> Self {
        static EMPTY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));
        Self { edge_id: EMPTY.clone(), route_id: EMPTY.clone() }
    }
}

/// What HTTP requests are spoken with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, with prior knowledge.
    Http2,
}

/// Finds the online tunnels that serve all these labels.
pub trait TunnelGroups: Send + Sync + 'static {
    /// At most `most` of the tunnels whose labels contain all of `labels`, oldest first, beginning with
    /// the one after `skipped`, counted around; none for no labels.
    fn matching(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
    ) -> Vec<Arc<dyn Target>>;

    /// When the agent of a tunnel with all of these labels was lost, the last of several; none where it was a
    /// while ago, or the tunnels were stopped.
    fn lost(&self, _labels: &BTreeMap<String, String>) -> Option<Instant> {
        None
    }
}

/// How well what has a name fits a host: the name itself before a wildcard, a longer wildcard before a
/// shorter one; of one name, the port that was asked for before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRank {
    name: usize,
    is_port: bool,
}

impl HostRank {
    /// Of the host's own name.
    pub fn exact(is_port: bool) -> Self {
        Self { name: usize::MAX, is_port }
    }

    /// Of `*.` before this name.
    pub fn wild(parent: &str, is_port: bool) -> Self {
        Self { name: parent.len(), is_port }
    }

    /// Whether nothing fits better.
    pub fn is_best(self) -> bool {
        self == Self::exact(true)
    }
}

/// Knows which hosts the agents of other nodes serve.
pub trait RemoteHosts: Send + Sync + 'static {
    /// The node that serves a host, in lower case, for requests that come to this port: 443 for HTTPS, 80
    /// for HTTP unless the visitor has named another; and how well its name fits. None where no other node
    /// serves it, or none that can be reached. Those whose keys are among `failed` come last.
    fn find(&self, host: &str, port: u16, failed: &[String])
    -> Option<(HostRank, Arc<dyn Target>)>;

    /// Whether the TLS of any host's visitors ends at another node alone.
    fn end_tls(&self) -> bool;

    /// The endpoint of another node that serves a host, where the TLS of visitors ends there alone, and
    /// how well its name fits.
    fn find_tls(&self, host: &str) -> Option<(HostRank, Arc<dyn Target>)>;

    /// The endpoint at a port of its own at another node; none where no other node has one there.
    fn at_port(&self, port: u16) -> Option<Arc<dyn Target>>;

    /// How well the name of a host fits that other nodes serve, of which none can be reached now.
    fn cut_off(&self, host: &str, port: u16) -> Option<HostRank>;
}

/// Why no connection to a target could be opened; nothing was sent then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// Nobody serves the target now.
    #[error("offline")]
    Offline,
    /// Whoever serves it takes no more connections now.
    #[error("busy")]
    Busy,
    /// What the target forwards to cannot be reached.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The target has reset the connection before it was open.
    #[error("reset at once")]
    Reset,
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        if is_reset_at_once(&error) { Self::Reset } else { Self::Unreachable(error.to_string()) }
    }
}

/// Who stands at a public address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// Where the visitor comes from.
    pub peer: SocketAddr,
    /// Where the visitor has come to.
    pub local: SocketAddr,
    /// What the visitor speaks: `http`, `https`, `tcp` or `tls`.
    pub proto: &'static str,
    /// What was agreed on, where TLS ends at the service.
    pub tls: Option<Arc<VisitorTls>>,
    /// True when the bytes are TLS that does not end at the service.
    pub passthrough: bool,
}

/// What a visitor and the service agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitorTls {
    /// The version as `rustls` calls it, such as `TLSv1_3`; between nodes, too.
    pub version: &'static str,
    /// The cipher suite as `rustls` calls it, such as `TLS13_AES_128_GCM_SHA256`; between nodes, too.
    pub cipher_suite: &'static str,
    /// The name that the visitor asked for; empty when there was none.
    pub sni: String,
    /// The protocol agreed on by ALPN; empty when there was none.
    pub alpn: String,
    /// True when the session was resumed.
    pub resumed: bool,
    /// The certificate that the visitor has shown, as DER.
    pub client_certificate: Option<Arc<[u8]>>,
}
