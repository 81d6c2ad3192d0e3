//! How agents are served.

use std::time::Duration;

use ginnel_gateway::TrustedProxies;
use ginnel_mux::LoginLimits;
use ginnel_net::ConnectionCaps;

/// How agents are served.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// The name or address to listen on.
    pub host: String,
    /// The port; 0 picks a free port.
    pub port: u16,
    /// How many connections are held.
    pub connections: ConnectionCaps,
    /// How long an agent may be silent at first.
    pub first_byte_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The proxies in front of the service.
    pub trusted_proxies: TrustedProxies,
    /// True when connections of these begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How late a heartbeat may come back.
    pub heartbeat_tolerance: Duration,
    /// How long an agent may take to authenticate.
    pub login_timeout: Duration,
    /// How many connections of visitors an agent carries at once.
    pub streams: usize,
    /// How long a visitor waits for one of them.
    pub queue_timeout: Duration,
    /// How much may wait unread by visitors.
    pub unread: usize,
    /// How much an agent may ask for before it has authenticated.
    pub login: LoginLimits,
    /// How long the addresses of an agent that is gone are kept for it.
    pub reserve: Duration,
    /// True when agents may use only host names of domains that their owner has reserved.
    pub reserved_domains_only: bool,
    /// What stands before the number of an error code.
    pub code_prefix: String,
}
