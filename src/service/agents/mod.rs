//! What faces agents: their listener, their sessions, and the tunnels that they offer.
//!
//! `listener` takes connections, `login` finds out whose agent it is, `session` talks to one that
//! is known, `bind_request` turns what it asks for into an endpoint, and the [`Registry`] knows who is online
//! with what. `revocation` ends what a credential does not allow any more. A [`OnlineTunnel`] is how the edges
//! reach a local service through its agent.

mod access;
mod bind_request;
mod listener;
mod login;
mod proxy_protocol;
mod registry;
mod reservation;
mod revocation;
mod session;
mod socket;
mod state;
mod stream_shares;
mod tunnel;

use std::time::Duration;

use crate::gateway::TrustedProxies;
use crate::net::ConnectionCaps;

pub(crate) use listener::{AgentListener, BoundAgentListener};
pub(crate) use registry::{OnlineAgent, Registry};
pub(crate) use state::AgentsState;
pub(crate) use tunnel::{OnlineTunnel, TunnelKind};

/// How agents are served.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// The name or address to listen on.
    pub host: String,
    /// The port; 0 picks a free port.
    pub port: u16,
    /// How many connections are held.
    pub connections: ConnectionCaps,
    /// The proxies in front of the service.
    pub trusted_proxies: TrustedProxies,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How late a heartbeat may come back.
    pub heartbeat_tolerance: Duration,
    /// How long an agent may take to authenticate.
    pub login_timeout: Duration,
    /// How long the addresses of an agent that is gone are kept for it.
    pub reserve: Duration,
    /// What stands before the number of an error code.
    pub code_prefix: String,
}
