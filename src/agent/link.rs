//! The link to the service: connecting, introducing oneself, and coming back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Local};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::backoff::{Backoff, MAX_PAUSE};
use super::capture::{Source, Via};
use super::shutdown::Shutdown;
use super::tunnels::{Bound, Running, Tunnels};
use super::{Options, Shared, drain};
use crate::mux::{Code, Incoming, Session, Side, Stream, heartbeat};
use crate::protocol::message::{
    Answer, Auth, AuthExtra, Bind, BindExtra, BindLabeled, Failure, Hidden, StopTunnel, Unbind,
};
use crate::protocol::rpc::{self, Call};
use crate::protocol::{proxy, read_kind, stream_kind};

/// How long an answer of the service may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The codes by which a service refuses the credential itself: the authtoken is malformed, of a form
/// that is no longer taken, unknown or revoked, or missing.
const CREDENTIAL_CODES: [u16; 4] = [105, 106, 107, 4018];
/// The codes of what a person must change first: a value of the tunnel's definition, or the access
/// list of the authtoken.
const DEFINITION_CODES: [u16; 2] = [215, 600];
/// The code for an address at which another endpoint is online.
const TAKEN_CODE: u16 = 334;

/// A longer identifier is none.
const LONGEST_ID: usize = 64;

/// How many failures are remembered.
const FAILURES: usize = 50;

/// How the link to the service is.
#[derive(Debug, Clone)]
pub enum State {
    /// Connecting for the first time.
    Connecting,
    /// Connected.
    Online(Online),
    /// The connection was lost; connecting again.
    Reconnecting,
    /// Refused for good, or stopped.
    Offline,
}

/// A connection to the service.
#[derive(Clone)]
pub struct Online {
    pub(super) session: Session,
    latency: watch::Receiver<Option<Duration>>,
    /// The region that the service named.
    pub region: String,
}

/// Why a bind failed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There is no session with the service.
    #[error("a successful session has not been established")]
    Offline,
    /// The session broke meanwhile, or the service did not answer.
    #[error("the session was lost: {0}")]
    Lost(#[from] rpc::Error),
    /// The service refused it.
    #[error("{0}")]
    Refused(Failure),
}

impl BindError {
    /// Whether the service itself failed; nothing is wrong with what it was asked for.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Refused(failure) if !needs_person(failure) && !is_taken(failure))
    }
}

/// What is remembered over connections.
#[derive(Debug, Default)]
pub struct Memory {
    /// How often the link was lost and made again.
    pub reconnects: u64,
    /// Why the service refuses the authtoken, once it did.
    pub refusal: Option<String>,
    /// What went wrong, newest last.
    pub failures: VecDeque<Failed>,
    client_id: String,
    cookie: Hidden,
}

/// Something that went wrong.
#[derive(Debug, Clone)]
pub struct Failed {
    /// When.
    pub at: DateTime<Local>,
    /// What.
    pub reason: String,
}

impl Memory {
    fn failed(&mut self, reason: String) {
        if self.failures.len() == FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(Failed { at: Local::now(), reason });
    }
}

impl std::fmt::Debug for Online {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Online").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Online {
    /// How long the last heartbeat took; none before the first came back.
    pub fn latency(&self) -> Option<Duration> {
        *self.latency.borrow()
    }
}

impl State {
    /// The word for it in the agent API.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Online(_) => "online",
            Self::Reconnecting => "reconnecting",
            Self::Offline => "offline",
        }
    }
}

/// Why a connection was not made.
enum ConnectError {
    /// It may work later.
    Retriable(String),
    /// The service refuses the authtoken.
    Credential(String),
}

/// Connects, and connects again whenever the link is lost, until the agent stops.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut shutdown = shared.shutdown.subscribe();
    let mut backoff = Backoff::new(Instant::now());
    loop {
        let connected = tokio::select! {
            connected = connect(&shared, &backoff) => connected,
            _ = shutdown.wait_for(|shutdown| *shutdown >= Shutdown::Graceful) => break,
        };
        match connected {
            Ok((online, incoming)) => {
                let began = Instant::now();
                tokio::select! {
                    reason = hold(&shared, online, incoming) => shared.lost(&reason),
                    _ = shutdown.wait_for(|shutdown| *shutdown == Shutdown::Forced) => break,
                }
                backoff.session_lost(began.elapsed(), Instant::now());
            }
            Err(ConnectError::Credential(reason)) => {
                shared.refused(reason);
                break;
            }
            Err(ConnectError::Retriable(reason)) => shared.not_connected(&reason),
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next_pause(Instant::now())) => {}
            _ = shutdown.wait_for(|shutdown| *shutdown >= Shutdown::Graceful) => break,
        }
    }
    if let State::Online(online) = shared.state.send_replace(State::Offline) {
        // The service need not wait for a heartbeat to see that we are gone.
        online.session.go_away(Code::NONE, "").await;
    }
}

async fn connect(
    shared: &Arc<Shared>,
    backoff: &Backoff,
) -> Result<(Online, Incoming), ConnectError> {
    let options = &shared.options;
    let address = &options.server_addr;
    let limit = backoff.connect_timeout(options.connect_timeout, Instant::now());
    let stream = match tokio::time::timeout(limit, dial(options, &shared.tls)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(ConnectError::Retriable(format!("{address}: {error}"))),
        Err(_) => return Err(ConnectError::Retriable(format!("{address}: no answer"))),
    };
    let (session, incoming) = Session::start(stream, Side::Agent);
    let auth = shared.remembered(|memory| auth(options, memory));
    let answer = rpc::call(&session, &auth, PATIENCE).await;
    let answer = answer.map_err(|error| ConnectError::Retriable(error.to_string()))?;
    if let Some(failure) = answer.failure() {
        session.close();
        let is_credential = failure.number().is_some_and(|it| CREDENTIAL_CODES.contains(&it));
        let kind = if is_credential { ConnectError::Credential } else { ConnectError::Retriable };
        return Err(kind(failure.to_string()));
    }
    shared.remember(|memory| {
        memory.client_id = answer.client_id;
        memory.cookie = answer.extra.cookie;
    });
    let beat = heartbeat::keep(&session, options.heartbeat_interval, options.heartbeat_tolerance);
    let latency = beat.watch();
    let alive = session.clone();
    tokio::spawn(async move {
        let _ = alive.ended().await;
        drop(beat);
    });
    Ok((Online { session, latency, region: answer.extra.region }, incoming))
}

async fn dial(
    options: &Options,
    tls: &Arc<ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(&options.server_addr).await?;
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let host = options.server_addr.rsplit_once(':').map_or("", |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    let name = name.map_err(std::io::Error::other)?;
    TlsConnector::from(tls.clone()).connect(name, stream).await
}

fn auth(options: &Options, memory: &Memory) -> Auth {
    let nanoseconds = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let supported = |yes: bool| {
        Some(if yes { String::new() } else { "remote management is switched off".to_owned() })
    };
    let version = env!("CARGO_PKG_VERSION");
    Auth {
        version: vec!["3".to_owned(), "2".to_owned()],
        client_id: memory.client_id.clone(),
        extra: AuthExtra {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            auth_token: options.authtoken.0.as_str().into(),
            version: version.to_owned(),
            client_type: "ginnel".to_owned(),
            user_agent: format!("ginnel/{version}"),
            metadata: options.metadata.clone(),
            cookie: memory.cookie.clone(),
            heartbeat_interval: nanoseconds(options.heartbeat_interval),
            heartbeat_tolerance: nanoseconds(options.heartbeat_tolerance),
            restart_unsupported_error: supported(options.remote_management),
            stop_unsupported_error: supported(options.remote_management),
            update_unsupported_error: Some(
                "the agent is updated by its package manager".to_owned(),
            ),
            ..AuthExtra::default()
        },
    }
}

/// Serves a session until it is lost; returns why it was.
async fn hold(shared: &Arc<Shared>, online: Online, mut incoming: Incoming) -> String {
    let serving = async {
        while let Some(stream) = incoming.next().await {
            tokio::spawn(serve(shared.clone(), online.session.clone(), stream));
        }
    };
    let binding = async {
        tokio::select! {
            () = bind_all(shared, &online) => {}
            _ = online.session.ended() => {}
        }
    };
    // Visitors and heartbeats do not wait for the last of many tunnels.
    tokio::join!(binding, serving);
    online.session.ended().await.to_string()
}

/// Binds the tunnels that there are; only then the agent is online. Those that the service refuses
/// are tried again for as long as the session lives.
async fn bind_all(shared: &Shared, online: &Online) {
    let mut refused = bind_some(shared, online, shared.tunnels.all()).await;
    shared.state.send_replace(State::Online(online.clone()));
    let mut backoff = Backoff::new(Instant::now());
    while !refused.is_empty() {
        let can_succeed = refused.iter().any(|refused| refused.is_retriable);
        let pause = if can_succeed { backoff.next_pause(Instant::now()) } else { MAX_PAUSE };
        tokio::time::sleep(pause).await;
        let again = refused.into_iter().map(|refused| refused.tunnel).collect();
        refused = bind_some(shared, online, again).await;
        shared.state.send_modify(|_| {});
    }
}

/// A tunnel that the service has refused.
struct RefusedTunnel {
    tunnel: Arc<Running>,
    /// The service may bind it later, although nobody changes anything.
    is_retriable: bool,
}

/// Binds tunnels one after another; returns those that the service refuses.
async fn bind_some(
    shared: &Shared,
    online: &Online,
    tunnels: Vec<Arc<Running>>,
) -> Vec<RefusedTunnel> {
    let mut refused = Vec::new();
    for tunnel in tunnels {
        if !shared.tunnels.has(&tunnel) || shared.is_stopping() {
            continue;
        }
        match bind_again(&online.session, &tunnel).await {
            // It was stopped meanwhile, when nobody could tell the service.
            Ok(()) if !shared.tunnels.has(&tunnel) => {
                unbind(&online.session, &tunnel).await;
            }
            Ok(()) => {}
            // The next session is for it, and the addresses with it.
            Err(BindError::Offline | BindError::Lost(_)) => {
                online.session.close();
                break;
            }
            Err(BindError::Refused(failure)) => {
                let is_retriable = !needs_person(&failure);
                shared.not_bound(&tunnel, &failure);
                refused.push(RefusedTunnel { tunnel, is_retriable });
            }
        }
    }
    refused
}

/// Whether a bind is refused for something that somebody must change first.
fn needs_person(failure: &Failure) -> bool {
    failure.number().is_some_and(|it| DEFINITION_CODES.contains(&it))
}

/// Serves one stream of the service.
async fn serve(shared: Arc<Shared>, session: Session, mut stream: Stream) {
    // A stream that breaks harms no other.
    let Ok(kind) = read_kind(&mut stream).await else { return };
    match kind {
        stream_kind::HEARTBEAT => heartbeat::answer(stream).await,
        stream_kind::PROXY => carry(&shared.tunnels, stream).await,
        stream_kind::STOP_TUNNEL => {
            let Ok(call) = Call::read(kind, stream).await else { return };
            let Ok(told) = call.decode::<StopTunnel>() else { return };
            if let Some(tunnel) = shared.tunnels.bound_as(&told.id) {
                shared.tunnels.remove(&tunnel.name);
                shared.remember(|memory| memory.failed(told.message));
            }
        }
        stream_kind::STOP | stream_kind::RESTART | stream_kind::UPDATE => {
            obey(&shared, &session, kind, stream).await;
        }
        _ => stream.reset(Code::REFUSED),
    }
}

async fn obey(shared: &Arc<Shared>, session: &Session, kind: u32, stream: Stream) {
    let Ok(call) = Call::read(kind, stream).await else { return };
    let reason = match kind {
        stream_kind::UPDATE => Some("the agent is updated by its package manager"),
        _ if !shared.options.remote_management => Some("remote management is switched off"),
        _ => None,
    };
    if let Some(reason) = reason {
        let _ = call.refuse(reason).await;
        return;
    }
    // The answer goes first: nothing can be said afterwards.
    let _ = call.answer(&Answer::default()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    if kind == stream_kind::STOP {
        drain::graceful(shared, shared.options.grace).await;
        shared.shutdown.send_replace(Shutdown::Forced);
    } else {
        session.close();
    }
}

async fn carry(tunnels: &Tunnels, mut stream: Stream) {
    let Ok(header) = proxy::read_header(&mut stream).await else { return };
    let Some(tunnel) = tunnels.bound_as(&header.id) else { return };
    let remote_addr = match header.client_addr.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => header.client_addr,
    };
    let via = Via::of_edge_type(&header.edge_type);
    let (edge_id, route_id) = (sensible(header.edge_id), sensible(header.route_id));
    let source = Source { remote_addr, replay_of: None, via, edge_id, route_id };
    tunnel.serve(stream, source).await;
}

/// An identifier that is short enough to be kept with each request, else none.
fn sensible(id: String) -> String {
    if id.len() <= LONGEST_ID { id } else { String::new() }
}

/// Binds a tunnel; what the service gave is noted in it.
pub(super) async fn bind(session: &Session, tunnel: &Running) -> Result<(), BindError> {
    let before = tunnel.bound();
    let bound = match tunnel.proto {
        Some(proto) => {
            let bind = Bind {
                id: before.id,
                proto: proto.to_owned(),
                forwards_to: tunnel.definition.address.shown(),
                forwards_proto: String::new(),
                opts: tunnel.options.clone(),
                extra: BindExtra {
                    name: tunnel.name.clone(),
                    token: before.token,
                    metadata: tunnel.definition.metadata.clone(),
                    ..BindExtra::default()
                },
            };
            let answer = rpc::call(session, &bind, PATIENCE).await?;
            if let Some(failure) = answer.failure() {
                return Err(BindError::Refused(failure));
            }
            Bound { id: answer.id, token: answer.extra.token, url: Some(answer.url) }
        }
        None => Bound { id: bind_labeled(session, tunnel).await?, ..Bound::default() },
    };
    tunnel.set_bound(bound);
    tunnel.set_online();
    Ok(())
}

async fn bind_labeled(session: &Session, tunnel: &Running) -> Result<String, BindError> {
    let labels = match &tunnel.definition.public {
        super::definition::Public::Labeled(labels) => labels.clone(),
        _ => Default::default(),
    };
    let bind = BindLabeled {
        labels,
        forwards_to: tunnel.definition.address.shown(),
        forwards_proto: String::new(),
        metadata: tunnel.definition.metadata.clone(),
    };
    let answer = rpc::call(session, &bind, PATIENCE).await?;
    match answer.failure() {
        Some(failure) => Err(BindError::Refused(failure)),
        None => Ok(answer.id),
    }
}

/// Binds a tunnel at its old address, or where that is gone at another. Where both are refused, the
/// old address stays reserved for it; a service that failed is not asked for another.
async fn bind_again(session: &Session, tunnel: &Running) -> Result<(), BindError> {
    let before = tunnel.bound();
    match bind(session, tunnel).await {
        Err(BindError::Refused(failure)) if is_taken(&failure) || needs_person(&failure) => {
            tunnel.set_bound(Bound::default());
            let bound = bind(session, tunnel).await;
            if bound.is_err() {
                tunnel.set_bound(before);
            }
            bound
        }
        other => other,
    }
}

/// Whether another endpoint is online at the address.
fn is_taken(failure: &Failure) -> bool {
    failure.number() == Some(TAKEN_CODE)
}

/// Tells the service that a tunnel is over.
pub(super) async fn unbind(session: &Session, tunnel: &Running) {
    let unbind = Unbind { id: tunnel.bound().id, extra: None };
    // A service that is gone has forgotten it anyway.
    let _ = rpc::call(session, &unbind, PATIENCE).await;
}

impl Shared {
    fn remember(&self, change: impl FnOnce(&mut Memory)) {
        change(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Looks at what is remembered.
    pub(super) fn remembered<T>(&self, look: impl FnOnce(&Memory) -> T) -> T {
        look(&self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_stopping(&self) -> bool {
        *self.shutdown.borrow() >= Shutdown::Graceful
    }

    /// Notes that the link was lost.
    fn lost(&self, reason: &str) {
        if !self.is_stopping() {
            self.remember(|memory| memory.reconnects += 1);
        }
        self.not_connected(reason);
    }

    /// Notes why there is no link, and tells those who watch.
    fn not_connected(&self, reason: &str) {
        self.remember(|memory| memory.failed(reason.to_owned()));
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_reconnecting(reason));
        self.state.send_modify(|state| {
            if !matches!(state, State::Connecting) {
                *state = State::Reconnecting;
            }
        });
    }

    /// Notes why a tunnel has no address for now.
    fn not_bound(&self, tunnel: &Running, failure: &Failure) {
        tunnel.set_reconnecting(&failure.to_string());
        let problem = format!("tunnel {}: {failure}", tunnel.name);
        self.remember(|memory| memory.failed(problem));
    }

    /// Notes that the service refuses the authtoken.
    fn refused(&self, reason: String) {
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_refused(&reason));
        self.remember(|memory| {
            memory.failed(reason.clone());
            memory.refusal = Some(reason);
        });
    }
}

/// What is remembered, shared.
pub(super) type SharedMemory = Mutex<Memory>;
