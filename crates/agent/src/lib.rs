//! The local side of a tunnel. The agent connects to a service, forwards visitors to local services, captures their
//! requests, replays them, and serves the agent API with the inspector.
//!
//! # One visitor
//!
//! `session` keeps the session with the service. A stream of the session begins with a message that names its tunnel;
//! `session/requests.rs` finds the tunnel in `tunnels`. [`relay`] connects to the local service and copies the bytes in
//! both directions, while [`capture`] keeps the request and the response and [`metrics`] counts them. `web` serves the
//! agent API; [`definition`] parses the tunnels that it is asked to start.
//!
//! # Invariants
//!
//! - The agent does not depend on the service: they share only `mux` and the types of `api`.
//! - The agent knows no Python.

mod archive;
mod backoff;
pub mod capture;
pub mod config;
pub mod definition;
mod drain;
mod edits;
mod endpoints;
mod error;
pub mod hosts;
mod inner;
pub mod intercept;
mod masked_body;
mod messages;
pub mod metrics;
mod monitoring;
mod node_claims;
mod option_parts;
mod options;
mod outgoing;
mod page;
mod protobuf;
pub mod relay;
mod replay;
mod replay_schedules;
mod service_proxies;
mod session;
mod session_state;
mod slot;
mod tls;
pub mod traffic;
mod tunnels;
mod unix_sockets;
mod web;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use error::Error;
pub use ginnel_settings::ByteSize;
pub use inner::AgentInner;
pub use masked_body::{MaskedBody, MaskedPart};
pub use options::{AgentOptions, WebAddress};
pub use page::masked_target;
pub use page::{
    BodyView, DetailChoice, HeaderView, MessageView, PartView, RequestDetail, RequestFilter,
    RequestSummary,
};
pub use relay::LocalUpstream;
pub use replay::ReplayError;
pub use session::{StartError, TunnelBindError};
pub use session_state::{OnlineSession, OnlineSessions, SessionState};
pub use tls::Trust;
pub use tunnels::{LocalService, RunningTunnel, TunnelStatus};

use ginnel_api::local::tunnels::AgentTunnel;
use ginnel_base::address::{UpstreamAddress, reachable_address};
use ginnel_base::logging::or_debug;
use ginnel_http1::reuse::ReuseBans;
use ginnel_mux::protocol::rules_header;
use ginnel_net::admin::AdminListener;
use ginnel_net::{Shutdown, ShutdownPhase};

use capture::{CaptureStore, FileLimits, InspectFile};
use definition::{Definition, EndpointDefinition};
use metrics::{RequestCounts, TunnelMetrics};
use monitoring::AgentMonitor;
use option_parts::OptionParts;
use relay::{ForbiddenAddresses, HttpForwarder};
use replay::ReplayPlan;
use session_state::SharedSessionHistory;
use tunnels::Tunnels;
use web::WebServer;

/// An agent at work; many may run in one process. Dropping it stops it at once.
pub struct Agent {
    shared: Arc<AgentInner>,
    web: Option<WebServer>,
    admin: Option<AdminListener>,
    session_task: JoinHandle<()>,
}

impl Agent {
    /// Starts an agent on the current tokio runtime; it connects in the background.
    ///
    /// # Errors
    /// When an option is wrong, or the local API cannot listen.
    pub async fn start(options: AgentOptions) -> Result<Self, Error> {
        let parts = OptionParts::from_options(&options).map_err(Error::first_problem)?;
        let closed = ForbiddenAddresses::new(&options.closed);
        let listener = web::open_listener(&options.web_addr).await?;
        let local_only = match &listener {
            Some(listener) => listener.local_addr().is_ok_and(|address| address.ip().is_loopback()),
            None => true,
        };
        let hosts = parts.web_hosts.for_listener(local_only);
        let captures = open_captures(&options).await?;
        let shared = Arc::new(AgentInner {
            captures,
            rules_header: rules_header::random_name(),
            interceptors: parts.interceptors,
            replay_schedules: replay_schedules::ScheduleRegistry::default(),
            options,
            tls: parts.tls,
            proxies: parts.proxies,
            proto_files: protobuf::ProtoFiles::default(),
            requests: RequestCounts::default(),
            tunnels: Tunnels::default(),
            state: watch::Sender::new(SessionState::Connecting),
            shutdown: Shutdown::default(),
            claims: Arc::default(),
            history: SharedSessionHistory::default(),
            closed,
            replay_hosts: parts.replay_hosts,
            socket_roots: parts.socket_roots,
            reuse_bans: ReuseBans::default(),
            started: Instant::now(),
            run: chrono::Local::now().timestamp_micros(),
        });
        let web = match listener {
            Some(listener) => Some(WebServer::start(listener, shared.clone(), hosts)?),
            None => None,
        };
        let admin = start_admin(&shared).await?;
        let session_task = ginnel_base::tasks::spawn(session::run_sessions(shared.clone()));
        Ok(Self { shared, web, admin, session_task })
    }

    /// The address of the local API, without a path; none where it is off.
    pub fn api_url(&self) -> Option<String> {
        self.web.as_ref().map(|web| format!("http://{}", reachable_address(web.address())))
    }

    /// Where `/healthz`, `/readyz` and `/metrics` are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| reachable_address(admin.address()))
    }

    /// How the link to the service is.
    pub fn session_state(&self) -> SessionState {
        self.shared.state.borrow().clone()
    }

    /// How the link to the service is, as it changes.
    pub fn watch_state(&self) -> watch::Receiver<SessionState> {
        self.shared.state.subscribe()
    }

    /// How long the agent has been at work.
    pub fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// How often the link to the service was lost and made again.
    pub fn reconnect_count(&self) -> u64 {
        self.shared.with_history(|history| history.reconnects)
    }

    /// Recent errors last.
    pub fn last_error(&self) -> Option<String> {
        self.shared
            .with_history(|history| history.failures.back().map(|failed| failed.reason.clone()))
    }

    /// The captured requests.
    pub fn captures(&self) -> &Arc<CaptureStore> {
        &self.shared.captures
    }

    /// The newest captured requests that a filter lets through, newest first, without secrets.
    pub fn list_requests(&self, filter: &RequestFilter, limit: usize) -> Vec<RequestSummary> {
        let all = self.shared.captures.list(usize::MAX, None);
        let matching = all.iter().filter(|record| filter.matches_record(record));
        matching.take(limit).map(|record| RequestSummary::from_record(record)).collect()
    }

    /// All about one captured request without its secrets, if it is still kept.
    pub fn request_detail(&self, id: &str) -> Option<RequestDetail> {
        let record = self.shared.captures.find(id)?;
        Some(RequestDetail::from_record(&self.shared, &record, DetailChoice::default()))
    }

    /// Sends a captured request again, to the local service of its tunnel; ends when that has responded, or
    /// after ten seconds.
    ///
    /// # Errors
    /// When it is no longer kept, was not kept whole, or its tunnel does not run.
    pub fn replay_request(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<(), ReplayError>> + Send + use<> {
        let (shared, id) = (self.shared.clone(), id.to_owned());
        async move { shared.replay_request(&id, None, ReplayPlan::new(None, None, None)?).await }
    }

    /// The tunnels that run, oldest first.
    pub fn list_tunnels(&self) -> Vec<AgentTunnel> {
        self.shared.tunnels.all().iter().map(|tunnel| self.shared.show_tunnel(tunnel)).collect()
    }

    /// Gets a new value whenever a tunnel has started.
    pub fn watch_tunnels(&self) -> watch::Receiver<u64> {
        self.shared.tunnels.subscribe_due()
    }

    /// Returns a function that lists the local services behind the tunnels.
    pub fn upstream_source(&self) -> impl Fn() -> Vec<LocalUpstream> + Send + use<> {
        let shared = self.shared.clone();
        move || shared.tunnels.all().iter().map(|tunnel| tunnel.upstream().clone()).collect()
    }

    /// Counts the connections of visitors that are open, also after the agent began to stop.
    pub fn connection_counter(&self) -> impl Fn() -> i64 + use<> {
        let shared = self.shared.clone();
        move || shared.tunnels.all().iter().map(|it| it.metrics.open_connections()).sum()
    }

    /// Starts the tunnels of a definition: one for each scheme. The first is the one that counts.
    ///
    /// # Errors
    /// When the definition is wrong, there is no session, or the service refuses.
    pub async fn start_tunnel(&self, definition: Definition) -> Result<AgentTunnel, StartError> {
        self.shared.start_tunnel(definition).await.map(|tunnel| tunnel.to_agent_tunnel())
    }

    /// Ends a tunnel; false when there is none of that name.
    pub async fn stop_tunnel(&self, name: &str) -> bool {
        self.shared.stop_tunnel(name).await
    }

    /// Why the service refuses the agent for good; none where it does not.
    pub fn refusal(&self) -> Option<Error> {
        self.shared.with_history(|history| history.refusal.clone()).map(Error::Refused)
    }

    /// Waits until the agent has ended: refused for good, stopped from afar, or by [`Agent::stop`].
    pub async fn wait_until_ended(&mut self) {
        // It ends by itself; a panic ends it as well.
        or_debug!((&mut self.session_task).await, "the session's task broke");
    }

    /// Tells the service to send no more visitors, lets those finish who are being served, for as
    /// long as `grace`, and lets go of everything. WebSockets are closed at the beginning, with the
    /// code 1001.
    pub async fn stop(self, grace: Duration) {
        self.stop_or_force(grace, std::future::pending()).await;
    }

    /// Does what [`Agent::stop`] does, and cuts off whoever is still being served when `force`
    /// completes before the grace is over.
    pub async fn stop_or_force(mut self, grace: Duration, force: impl Future<Output = ()>) {
        tokio::select! {
            () = drain::drain_agent(&self.shared, grace) => {}
            () = force => {}
        }
        self.shared.shutdown.begin_phase(ShutdownPhase::Forced);
        self.wait_until_ended().await;
        for tunnel in self.shared.tunnels.all() {
            self.shared.tunnels.remove(&tunnel.name);
        }
        self.shared.close_file().await;
    }
}

/// The captured requests: none yet, or those of the file.
async fn open_captures(options: &AgentOptions) -> Result<Arc<CaptureStore>, Error> {
    let Some(path) = options.inspect_file.clone() else {
        return Ok(CaptureStore::new(options.capture_limits()));
    };
    let limits = FileLimits { bytes: options.inspect_file_size.0, age: options.inspect_file_age };
    let limit = options.capture_limits();
    let opening = move || CaptureStore::with_file(limit, &path, limits);
    let opened = ginnel_base::tasks::spawn_blocking(opening).await;
    let wrong = |problem| Error::Option { option: "inspect_file".to_owned(), problem };
    let opened = opened.map_err(|error| wrong(error.to_string()))?;
    opened.map_err(|error| wrong(error.to_string()))
}

/// Listens for whoever watches the agent, where that is wanted.
async fn start_admin(shared: &Arc<AgentInner>) -> Result<Option<AdminListener>, Error> {
    let Some(address) = &shared.options.admin_addr else { return Ok(None) };
    let monitor = Arc::new(AgentMonitor(Arc::downgrade(shared)));
    let started = AdminListener::start(address, monitor).await;
    let failed = |source| Error::AdminAddress { address: address.to_string(), source };
    started.map(Some).map_err(failed)
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.shutdown.begin_phase(ShutdownPhase::Forced);
        for tunnel in self.shared.tunnels.all() {
            tunnel.stop();
        }
        // Whoever starts another agent next finds the file free.
        if let Some(file) = self.shared.captures.file() {
            file.close();
        }
    }
}

impl AgentInner {
    /// Writes what is left of captured requests, and lets their file go.
    async fn close_file(&self) {
        let captures = self.captures.clone();
        let closing = move || captures.file().into_iter().for_each(InspectFile::close);
        or_debug!(ginnel_base::tasks::spawn_blocking(closing).await, "cannot close inspect_file");
    }

    /// Starts the tunnels of a definition.
    async fn start_tunnel(&self, definition: Definition) -> Result<Arc<RunningTunnel>, StartError> {
        let sessions = self.online_sessions()?;
        let definition = Arc::new(definition);
        let mut started: Vec<Arc<RunningTunnel>> = Vec::new();
        for (suffix, proto) in definition.bound_protocols() {
            let started_one = self.start_one(&sessions, &definition, suffix, proto).await;
            match started_one {
                Ok(tunnel) => started.push(tunnel),
                Err(error) => {
                    // All of them or none.
                    for tunnel in started {
                        self.stop_tunnel(&tunnel.name).await;
                    }
                    return Err(error);
                }
            }
        }
        let first = started.into_iter().next();
        first.ok_or_else(|| StartError::Definition(vec!["schemes: is empty".to_owned()]))
    }

    /// The sessions in which tunnels can be started.
    fn online_sessions(&self) -> Result<OnlineSessions, StartError> {
        match &*self.state.borrow() {
            SessionState::Online(sessions) if self.shutdown.phase() == ShutdownPhase::Running => {
                Ok(sessions.clone())
            }
            _ => Err(TunnelBindError::Offline.into()),
        }
    }

    /// Starts a tunnel that was stopped.
    async fn start_again(&self, old: &RunningTunnel) -> Result<Arc<RunningTunnel>, StartError> {
        let sessions = self.online_sessions()?;
        let suffix = old.name.strip_prefix(&old.definition.name).unwrap_or_default();
        self.start_one(&sessions, &old.definition, suffix, old.proto).await
    }

    async fn start_one(
        &self,
        sessions: &OnlineSessions,
        definition: &Arc<Definition>,
        suffix: &str,
        proto: Option<&'static str>,
    ) -> Result<Arc<RunningTunnel>, StartError> {
        let name = format!("{}{suffix}", definition.name);
        let tunnel = Arc::new(self.prepare_tunnel(name, definition, proto)?);
        if !self.tunnels.add(&tunnel) {
            let problem = format!("name: tunnel {:?} already exists", tunnel.name);
            return Err(StartError::Definition(vec![problem]));
        }
        match bind_in_any(sessions, &tunnel).await {
            Ok(()) => {
                // The other session binds it by itself, and again whenever it has to.
                self.tunnels.bind_again();
                Ok(tunnel)
            }
            Err(error) => {
                self.tunnels.remove(&tunnel.name);
                Err(error.into())
            }
        }
    }

    fn prepare_tunnel(
        &self,
        name: String,
        definition: &Arc<Definition>,
        proto: Option<&'static str>,
    ) -> Result<RunningTunnel, StartError> {
        let wrong = |problem: String| StartError::Definition(vec![problem]);
        let trust = match &definition.verify {
            None => Trust::Anything,
            Some(None) => Trust::System,
            Some(Some(path)) => Trust::from_file(path)
                .map_err(|error| wrong(format!("upstream_tls_verify_cas: {error}")))?,
        };
        let tls = match definition.address {
            UpstreamAddress::Tls(_) => trust.client_config(),
            // Nobody will use it.
            _ => Ok(self.tls.clone()),
        };
        let tls = tls.map_err(|error| wrong(format!("upstream_tls_verify_cas: {error}")))?;
        let upstream = LocalUpstream::new(definition.address.clone(), tls, self.closed.clone())
            .with_roots(definition.socket_roots.clone())
            .with_bans(&self.reuse_bans)
            .with_protocol(definition.app_protocol);
        let metrics = Arc::new(TunnelMetrics::new(Instant::now()));
        let is_http = matches!(
            definition.public,
            EndpointDefinition::Http { .. } | EndpointDefinition::Labeled(_)
        );
        let inspects = definition.inspect && self.captures.is_on();
        let service = match is_http {
            false => LocalService::Bytes(upstream),
            true => LocalService::Http(HttpForwarder {
                tunnel_name: name.clone(),
                upstream,
                host_header: definition.host_header.clone(),
                scheme: if proto == Some("http") { "http" } else { "https" },
                captures: inspects.then(|| self.captures.clone()),
                rules_header: self.rules_header.clone(),
                interceptors: self.interceptors.clone(),
                metrics: metrics.clone(),
                responses: self.requests.for_proto(proto),
            }),
        };
        let options = definition.bind_options();
        RunningTunnel::new(name, definition.clone(), proto, options, service, metrics)
            .map_err(|error| wrong(format!("no random bytes: {error}")))
    }

    /// A tunnel as the agent API shows it.
    fn show_tunnel(&self, tunnel: &RunningTunnel) -> AgentTunnel {
        let mut shown = tunnel.to_agent_tunnel();
        if self.options.serves_wrappers {
            shown.config.addr = tunnel.upstream_url();
        }
        shown
    }

    /// Ends a tunnel; false when there is none of that name.
    async fn stop_tunnel(&self, name: &str) -> bool {
        if let Some(tunnel) = self.tunnels.find(name).filter(|it| it.definition.pooling) {
            // Others go on at its URL, so that nobody has to notice.
            drain::drain_tunnel(self, &tunnel).await;
        }
        let Some(tunnel) = self.tunnels.remove(name) else { return false };
        session::unbind_everywhere(&self.state, &tunnel).await;
        true
    }
}

/// Binds a tunnel in the first session that can; the other one is tried where a session or the service
/// failed, and not where the service refuses the tunnel.
async fn bind_in_any(
    sessions: &OnlineSessions,
    tunnel: &RunningTunnel,
) -> Result<(), TunnelBindError> {
    let mut last = TunnelBindError::Offline;
    for online in sessions.iter() {
        match session::bind_tunnel(online, tunnel).await {
            Err(error @ TunnelBindError::Offline) => last = error,
            Err(error @ TunnelBindError::Lost(_)) => {
                // The service may have bound it for all that is known, and ends it with the session.
                online.session.close();
                last = error;
            }
            Err(error) if error.is_fault() => last = error,
            other => return other,
        }
    }
    Err(last)
}
