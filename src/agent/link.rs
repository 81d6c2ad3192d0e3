//! The link to the service: connecting, introducing oneself, and coming back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Local};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::capture::{Source, Via};
use super::tunnels::{Bound, Running, Tunnels};
use super::{Options, Shared};
use crate::tunnel::message::{
    Answer, Auth, AuthExtra, Bind, BindExtra, BindLabeled, Failure, Hidden, StopTunnel, Unbind,
};
use crate::tunnel::rpc::{self, Call};
use crate::tunnel::{Code, Incoming, Session, Side, Stream, heartbeat, kind, proxy, read_kind};

/// How long an answer of the service may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before connecting again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

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

/// What is remembered over connections.
#[derive(Debug, Default)]
pub struct Memory {
    /// How often the link was lost and made again.
    pub reconnects: u64,
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
enum Missed {
    /// It may work later.
    ForNow(String),
    /// The service refuses this agent.
    ForGood(String),
}

/// Connects, and connects again whenever the link is lost, until the agent stops.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut pause = PAUSES.0;
    loop {
        let connected = tokio::select! {
            connected = connect(&shared) => connected,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match connected {
            Ok((online, incoming)) => {
                pause = PAUSES.0;
                let lost = hold(&shared, online, incoming);
                tokio::select! {
                    () = lost => {}
                    _ = stopping.wait_for(|stopping| *stopping) => break,
                }
                if shared.is_stopping() {
                    break;
                }
                shared.remember(|memory| memory.reconnects += 1);
            }
            Err(Missed::ForGood(reason)) => {
                shared.remember(|memory| memory.failed(reason));
                break;
            }
            Err(Missed::ForNow(reason)) => shared.remember(|memory| memory.failed(reason)),
        }
        let state = match &*shared.state.borrow() {
            State::Connecting => State::Connecting,
            _ => State::Reconnecting,
        };
        shared.state.send_replace(state);
        tokio::select! {
            () = tokio::time::sleep(jittered(pause)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => break,
        }
        pause = (pause * 2).min(PAUSES.1);
    }
    if let State::Online(online) = shared.state.send_replace(State::Offline) {
        // The service need not wait for a heartbeat to see that we are gone.
        let goodbye = online.session.go_away(Code::NONE, "");
        let _ = tokio::time::timeout(Duration::from_millis(200), goodbye).await;
    }
}

/// Between half of a pause and all of it, so that many agents do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without a random number the pause is of middle length.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause.mul_f64(f64::from(byte[0]) / 512.0)
}

async fn connect(shared: &Arc<Shared>) -> Result<(Online, Incoming), Missed> {
    let options = &shared.options;
    let connecting = dial(options, &shared.tls);
    let stream = tokio::time::timeout(options.connect_timeout, connecting).await;
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return Err(Missed::ForNow(format!("{}: {error}", options.server_addr)));
        }
        Err(_) => return Err(Missed::ForNow(format!("{}: no answer", options.server_addr))),
    };
    let (session, incoming) = Session::start(stream, Side::Agent);
    let auth = shared.remembered(|memory| auth(options, memory));
    let answer = rpc::call(&session, &auth, PATIENCE).await;
    let answer = answer.map_err(|error| Missed::ForNow(error.to_string()))?;
    if let Some(failure) = answer.failure() {
        session.close();
        return Err(Missed::ForGood(failure.to_string()));
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

/// Serves a session until it is lost.
async fn hold(shared: &Arc<Shared>, online: Online, mut incoming: Incoming) {
    let serving = async {
        while let Some(stream) = incoming.next().await {
            tokio::spawn(serve(shared.clone(), online.session.clone(), stream));
        }
    };
    // Visitors and heartbeats do not wait for the last of many tunnels.
    tokio::join!(bind_all(shared, &online), serving);
    let ended = online.session.ended().await;
    shared.remember(|memory| memory.failed(ended.to_string()));
}

/// Binds the tunnels that there are; only then the agent is online.
async fn bind_all(shared: &Shared, online: &Online) {
    for tunnel in shared.tunnels.all() {
        match bind_again(&online.session, &tunnel).await {
            // It was stopped meanwhile, when nobody could tell the service.
            Ok(()) if !shared.tunnels.has(&tunnel) => unbind(&online.session, &tunnel).await,
            Ok(()) => {}
            // The next session is for it, and the addresses with it.
            Err(BindError::Offline | BindError::Lost(_)) => return online.session.close(),
            Err(BindError::Refused(failure)) => {
                let problem = format!("tunnel {}: {failure}", tunnel.name);
                shared.remember(|memory| memory.failed(problem));
            }
        }
    }
    shared.state.send_replace(State::Online(online.clone()));
}

/// Serves one stream of the service.
async fn serve(shared: Arc<Shared>, session: Session, mut stream: Stream) {
    // A stream that breaks harms no other.
    let Ok(kind) = read_kind(&mut stream).await else { return };
    match kind {
        kind::HEARTBEAT => heartbeat::answer(stream).await,
        kind::PROXY => carry(&shared.tunnels, stream).await,
        kind::STOP_TUNNEL => {
            let Ok(call) = Call::read(kind, stream).await else { return };
            let Ok(told) = call.decode::<StopTunnel>() else { return };
            if let Some(tunnel) = shared.tunnels.bound_as(&told.id) {
                shared.tunnels.remove(&tunnel.name);
                shared.remember(|memory| memory.failed(told.message));
            }
        }
        kind::STOP | kind::RESTART | kind::UPDATE => {
            obey(&shared, &session, kind, stream).await;
        }
        _ => stream.reset(Code::REFUSED),
    }
}

async fn obey(shared: &Arc<Shared>, session: &Session, kind: u32, stream: Stream) {
    let Ok(call) = Call::read(kind, stream).await else { return };
    let reason = match kind {
        kind::UPDATE => Some("the agent is updated by its package manager"),
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
    if kind == kind::STOP {
        shared.stopping.send_replace(true);
    }
    session.close();
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
    let (read, write) = stream.into_split();
    tunnel.serve((Box::pin(read), Box::pin(write)), source).await;
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

/// Binds a tunnel at its old address, or where that is gone at another.
async fn bind_again(session: &Session, tunnel: &Running) -> Result<(), BindError> {
    match bind(session, tunnel).await {
        Err(BindError::Refused(_)) => {
            tunnel.set_bound(Bound::default());
            bind(session, tunnel).await
        }
        other => other,
    }
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
        *self.stopping.borrow()
    }
}

/// What is remembered, shared.
pub(super) type SharedMemory = Mutex<Memory>;
