//! How agents are served.

use std::time::Duration;

use ginnel_mux::{DEFAULT_BACKLOG_BYTES, LoginLimits};
use ginnel_net::ConnectionCaps;
use ginnel_net::descriptors::{self, DescriptorLimit};
use ginnel_settings::{ByteSize, MAX_TIME_MILLIS, settings};

/// The connections of agents that a service holds by default.
const AN_EIGHTH: &str = "an eighth of the limit of open files, at most 4,096";

settings! {
    /// How agents are served. A session keeps the limits that it began with.
    #[derive(Debug, Clone)]
    pub struct AgentSettings {
    }

    /// The settings of the listener.
    listener {
        host: Option<String> = None,
            "agent_host", "HOST",
            "The name or address to listen on for agents; 0.0.0.0 for all of this machine's",
            listed_in_help(), when_unset("that of `host`");
        port: Option<u16> = Some(0),
            "agent_port", "PORT",
            "The port for agents; 0 picks a free port, none disables it",
            listed_in_help(), with_keyword();
    }

    /// The limit of connections.
    connections {
        connections: Option<usize> = None,
            "max_agent_connections", "N",
            "The most agent connections that may be open",
            with_bounds(1, u32::MAX as u64), live(), when_unset(AN_EIGHTH), with_keyword();
    }

    /// The limits of one agent, under `agent`.
    limits {
        first_byte_timeout: Duration = Duration::from_secs(5),
            "agent.first_byte_timeout", "DURATION",
            "Maximum time until an agent sends its first byte",
            with_time_bounds(), live();
        handshake_timeout: Duration = Duration::from_secs(10),
            "agent.handshake_timeout", "DURATION",
            "Maximum duration of an agent's TLS handshake",
            with_time_bounds(), live();
        login_timeout: Duration = Duration::from_secs(10),
            "agent.login_timeout", "DURATION",
            "Maximum time until an agent has authenticated",
            with_time_bounds(), live();
        max_login_size: ByteSize = ByteSize(LoginLimits::default().bytes),
            "agent.max_login_size", "SIZE",
            "Maximum size of the data that an agent sends before it has authenticated",
            with_bounds(4 << 10, 1 << 20), live();
        heartbeat_interval: Duration = Duration::from_secs(10),
            "agent.heartbeat_interval", "DURATION",
            "The interval of heartbeats: an agent is asked when it sent nothing for one and a half, and each sixth time",
            with_time_bounds(), live(), named_keyword("heartbeat");
        heartbeat_tolerance: Duration = Duration::from_secs(15),
            "agent.heartbeat_tolerance", "DURATION",
            "Maximum delay of a heartbeat's response before the agent counts as gone",
            with_time_bounds(), live(), named_keyword("heartbeat");
        streams: usize = 500,
            "agent.max_streams", "N",
            "Maximum number of concurrent visitor connections of an agent; agents of other makers fail above 500",
            with_bounds(1, 4_000), live();
        queue_timeout: Duration = Duration::from_secs(1),
            "agent.queue_timeout", "DURATION",
            "Maximum time that a visitor waits for one of them to end when the maximum is reached",
            with_bounds(0, MAX_TIME_MILLIS), live();
        unread: ByteSize = ByteSize(DEFAULT_BACKLOG_BYTES),
            "agent.max_unread_size", "SIZE",
            "Maximum size of data that an agent's visitors leave unread; above it, visitors with more than 256 KiB lose streams",
            with_bounds(256 << 10, 1 << 30), live();
        reserve: Duration = Duration::from_secs(30),
            "agent.reserve", "DURATION",
            "Time for which the addresses of an agent that is gone are kept for it",
            with_bounds(0, 30 * 86_400_000), live(), named_keyword("reserve");
    }
}

impl AgentSettings {
    /// Maximum numbers of connections. The last quarter is for agents that are connected.
    pub fn connection_caps(&self) -> ConnectionCaps {
        let total =
            self.connections.unwrap_or_else(|| DescriptorLimit::read_current().agent_connections());
        let per_address = descriptors::share_per_address(total);
        ConnectionCaps { total, per_address, reserved: total / 4 }
    }

    /// The limits of the data that an agent sends before it has authenticated.
    pub fn login_limits(&self) -> LoginLimits {
        LoginLimits { bytes: self.max_login_size.0, ..LoginLimits::default() }
    }
}
