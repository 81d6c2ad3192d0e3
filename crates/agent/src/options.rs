//! How an agent is to run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use ginnel_api::Secret;
use ginnel_base::address::HostPort;
use ginnel_settings::ByteSize;

use super::capture::{CaptureLimit, CaptureLimits};
use super::tls::Trust;

/// How an agent is to run.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// Where the service takes agents, each `host:port`. Where its nodes are several, the agent keeps
    /// sessions to two of them.
    pub server_addrs: Vec<HostPort>,
    /// Whose certificate the service may show.
    pub trust: Trust,
    /// The proxy on the way to the service, with its login. Without it, the environment decides.
    pub proxy_url: Option<Secret>,
    /// What the service knows the agent by.
    pub authtoken: Secret,
    /// Free text that the management API shows.
    pub metadata: String,
    /// Where the local API listens.
    pub web_addr: WebAddress,
    /// Hosts that the local API answers to beside this machine's own names.
    pub web_allow_hosts: Vec<String>,
    /// Hosts that requests may be sent to again, beside this machine and the tunnels' own.
    pub replay_allow_hosts: Vec<String>,
    /// Folders below which callers of the agent API may name Unix sockets; none by default.
    pub unix_socket_roots: Vec<PathBuf>,
    /// How much is captured.
    pub inspect: CaptureLimit,
    /// The maximum length of a body that is captured whole. By default, it follows from `inspect`.
    pub inspect_body_limit: Option<ByteSize>,
    /// Where captured requests survive a restart; nowhere by default.
    pub inspect_file: Option<PathBuf>,
    /// How many bytes that file keeps.
    pub inspect_file_size: ByteSize,
    /// How long it keeps what is not pinned.
    pub inspect_file_age: Duration,
    /// The mocks to begin with: the fields of each, with its identifier.
    pub mocks: Vec<Map<String, Value>>,
    /// How long connecting to the service may take.
    pub connect_timeout: Duration,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How late a heartbeat may come back.
    pub heartbeat_tolerance: Duration,
    /// Whether the management API may stop and restart the agent.
    pub remote_management: bool,
    /// How long visitors in flight may take when the management API stops the agent.
    pub grace: Duration,
    /// Addresses that no tunnel may lead to, beside the APIs of this process.
    pub closed: Vec<SocketAddr>,
    /// If true, the agent API serves programs that wrap `ngrok`: local addresses are URLs such as
    /// `http://localhost:80`, and errors have the texts that wrappers wait for.
    pub serves_wrappers: bool,
    /// Where `/healthz`, `/readyz` and `/metrics` are, `host:port`; nowhere by default.
    pub admin_addr: Option<HostPort>,
}

/// Where the local API listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebAddress {
    /// At 127.0.0.1:4040, or where that is taken at one of the nine ports after it.
    Default,
    /// At this address; port 0 takes a free one.
    At(HostPort),
    /// Nowhere.
    Off,
}

impl AgentOptions {
    /// How much of the traffic is captured.
    pub(crate) fn capture_limits(&self) -> CaptureLimits {
        let limits = CaptureLimits::from(self.inspect);
        CaptureLimits { body: self.inspect_body_limit.map_or(limits.body, |it| it.0), ..limits }
    }

    /// The options for a service; everything else is as usual.
    pub fn new(server_addr: impl Into<Option<HostPort>>, authtoken: Secret, trust: Trust) -> Self {
        Self {
            server_addrs: server_addr.into().into_iter().collect(),
            trust,
            proxy_url: None,
            authtoken,
            metadata: String::new(),
            web_addr: WebAddress::Default,
            web_allow_hosts: Vec::new(),
            replay_allow_hosts: Vec::new(),
            unix_socket_roots: Vec::new(),
            inspect: CaptureLimit::default(),
            inspect_body_limit: None,
            inspect_file: None,
            inspect_file_size: ByteSize(50 << 20),
            inspect_file_age: Duration::from_secs(7 * 24 * 3600),
            mocks: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(10),
            heartbeat_tolerance: Duration::from_secs(15),
            remote_management: true,
            grace: Duration::from_secs(30),
            closed: Vec::new(),
            serves_wrappers: false,
            admin_addr: None,
        }
    }
}
