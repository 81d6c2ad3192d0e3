//! What all parts of an agent share.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderName;
use rustls::ClientConfig;
use tokio::sync::watch;

use ginnel_http1::reuse::ReuseBans;
use ginnel_net::Shutdown;

use super::capture::CaptureStore;
use super::hosts::AllowedHosts;
use super::intercept::Interceptors;
use super::metrics::RequestCounts;
use super::node_claims::NodeClaims;
use super::options::AgentOptions;
use super::protobuf::ProtoFiles;
use super::relay::ForbiddenAddresses;
use super::replay_schedules::ScheduleRegistry;
use super::service_proxies::ServiceProxies;
use super::session_state::{SessionState, SharedSessionHistory};
use super::tunnels::Tunnels;
use super::unix_sockets::UnixSocketRoots;

/// What all parts of an agent share.
pub struct AgentInner {
    pub(super) options: AgentOptions,
    pub(super) tls: Arc<ClientConfig>,
    /// The proxies on the way to the service.
    pub(super) proxies: ServiceProxies,
    pub(super) captures: Arc<CaptureStore>,
    /// Where the service says which rules acted on a request; none where it is not asked.
    pub(super) rules_header: Option<HeaderName>,
    pub(super) tunnels: Tunnels,
    /// The mocks and holds.
    pub(super) interceptors: Arc<Interceptors>,
    /// The requests that are sent again and again.
    pub(super) replay_schedules: ScheduleRegistry,
    /// What describes messages of gRPC.
    pub(super) proto_files: ProtoFiles,
    pub(super) requests: RequestCounts,
    pub(super) state: watch::Sender<SessionState>,
    pub(super) shutdown: Shutdown,
    /// The nodes of the service that the sessions lead to.
    pub(super) claims: Arc<NodeClaims>,
    pub(super) history: SharedSessionHistory,
    pub(super) closed: ForbiddenAddresses,
    /// Where requests may be sent again beside this machine.
    pub(super) replay_hosts: AllowedHosts,
    /// Folders below which callers of the agent API may name Unix sockets.
    pub(super) socket_roots: UnixSocketRoots,
    pub(super) reuse_bans: ReuseBans,
    pub(super) started: Instant,
    /// Distinguishes this run of the agent from those before.
    pub(super) run: i64,
}
