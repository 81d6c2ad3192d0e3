//! Where public connections go.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderName;

use ginnel_net::is_reset_at_once;

use crate::Io;
use crate::message::BoxFuture;
use crate::message::visitor::{RouteRef, Visitor};
use crate::upstream::budget::ConnectionBudget;

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
    fn connection_budget(&self) -> Option<Arc<ConnectionBudget>> {
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
    fn matching_targets(
        &self,
        labels: &BTreeMap<String, String>,
        skipped: usize,
        most: usize,
    ) -> Vec<Arc<dyn Target>>;

    /// When the agent of a tunnel with all of these labels was lost, the last of several; none where it was a
    /// while ago, or the tunnels were stopped.
    fn agent_lost_at(&self, _labels: &BTreeMap<String, String>) -> Option<Instant> {
        None
    }
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
