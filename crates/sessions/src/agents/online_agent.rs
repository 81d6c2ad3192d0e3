//! An agent that is connected.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderName;
use tokio::sync::watch;

use ginnel_api::Timestamp;
use ginnel_gateway::ConnectionBudget;
use ginnel_mux::MuxSession;
use ginnel_mux::protocol::message::Hidden;

use crate::accounts::AuthenticatedAgent;
use crate::agents::session_counts::SessionCounts;
use crate::agents::stream_shares::StreamShares;

/// An agent that is connected.
pub struct OnlineAgent {
    /// Unique identifier, `ts_` and 27 characters.
    pub id: String,
    /// What the agent names to come back.
    pub client_id: String,
    /// What it proves that with.
    pub cookie: Hidden,
    pub session: MuxSession,
    /// How long the last heartbeat took; not there before the agent is let in.
    pub latency: OnceLock<watch::Receiver<Option<Duration>>>,
    pub streams: AgentStreamLimits,
    pub budget: Arc<ConnectionBudget>,
    pub shares: StreamShares,
    pub counts: Arc<SessionCounts>,
    pub agent: AuthenticatedAgent,
    pub ip: IpAddr,
    pub os: String,
    pub agent_version: String,
    pub metadata: String,
    pub started_at: Timestamp,
    /// Why commands are not supported, for stop, restart and update; none when they are.
    pub unsupported: [Option<String>; 3],
    /// Where the agent wants to read which rules acted on a request; none where it does not.
    pub rules_header: Option<HeaderName>,
}

/// How many connections of visitors an agent carries.
#[derive(Debug, Clone, Copy)]
pub struct AgentStreamLimits {
    /// At once: the official agents break at 512 streams, their own and heartbeats counted (tunnel
    /// protocol, section 9).
    pub connections: usize,
    /// How long one more waits for another to end.
    pub queue_timeout: Duration,
}

impl AgentStreamLimits {
    /// How many streams the service has open then: one is its heartbeat.
    pub fn max_streams(&self) -> usize {
        self.connections + 1
    }
}
