//! Connecting to the service, and introducing oneself.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;

use ginnel_base::address::HostPort;
use ginnel_base::logging::ignore;
use ginnel_mux::protocol::message::{Auth, AuthAnswer, AuthExtra, Hidden, SAME_NODE_CODE};
use ginnel_mux::protocol::rpc;
use ginnel_mux::{Code, Incoming, MuxSession, Side, heartbeat};
use ginnel_net::proxy::{Proxy, ProxyStream, dial_through_proxy};
use ginnel_net::tls::server_name;
use ginnel_net::{DialRole, dial_any};

use super::RPC_TIMEOUT;
use super::addresses::{AddressBook, NextAddress};
use crate::backoff::Backoff;
use crate::inner::AgentInner;
use crate::node_claims::{ClaimGuard, NodeClaim};
use crate::options::AgentOptions;
use crate::service_proxies::ServicePlace;
use crate::session_state::OnlineSession;
use crate::slot::SessionSlot;

/// The codes by which a service refuses the credential itself: the authtoken is malformed, of a form
/// that is no longer taken, unknown or revoked, or missing.
const CREDENTIAL_CODES: [u16; 4] = [105, 106, 107, 4018];

/// Why a connection was not made.
pub(super) enum ConnectError {
    /// It may work later.
    Retriable(String),
    /// The service refuses the authtoken.
    Credential(String),
    /// The session would lead to the node of the other one, which may be the only node.
    SameNode { is_only: bool },
}

/// A session that has logged in.
pub(super) struct ConnectedSession {
    pub online: OnlineSession,
    pub incoming: Incoming,
    /// No other session leads to the same node meanwhile.
    pub claim: ClaimGuard,
}

/// What makes the session of a slot again and again.
pub(super) struct SessionKeeper {
    slot: SessionSlot,
    addresses: AddressBook,
    backoff: Backoff,
    /// Where the other session led when an address was last chosen.
    other: Option<NodeClaim>,
    /// What the service gave to come back with; each session has its own, for the service ends a session
    /// when another one shows its id.
    client_id: String,
    cookie: Hidden,
}

type ServiceStream = tokio_rustls::client::TlsStream<ProxyStream>;

/// A connection to the service, and where it leads.
struct ServiceConnection {
    name: HostPort,
    place: ServicePlace,
    stream: ServiceStream,
}

impl SessionKeeper {
    /// The first session begins with the first address, the second with the next.
    pub fn new(options: &AgentOptions, slot: SessionSlot) -> Self {
        let first = usize::from(slot == SessionSlot::Second);
        Self {
            slot,
            addresses: AddressBook::new(&options.server_addrs, first),
            backoff: Backoff::new(Instant::now()),
            other: None,
            client_id: String::new(),
            cookie: Hidden::default(),
        }
    }

    /// Connects to the service and logs in.
    pub async fn connect(
        &mut self,
        shared: &Arc<AgentInner>,
    ) -> Result<ConnectedSession, ConnectError> {
        let ServiceConnection { name, place, stream } = self.dial_next(shared).await?;
        let entered = self.establish_session(shared, stream, place.clone()).await;
        if let Err(ConnectError::SameNode { is_only }) = entered {
            tracing::debug!(address = %name, "the other session leads to the same node");
            self.addresses.rest_address(place, Instant::now(), is_only);
        }
        let connected = entered?;
        let node = connected.online.node.as_deref();
        tracing::info!(address = %name, node, "connected to the service");
        self.addresses.record_success();
        Ok(connected)
    }

    /// Makes a session of a connection.
    async fn establish_session(
        &mut self,
        shared: &AgentInner,
        stream: ServiceStream,
        place: ServicePlace,
    ) -> Result<ConnectedSession, ConnectError> {
        let options = &shared.options;
        let (session, incoming) = MuxSession::start(stream, Side::Agent);
        let answer = self.log_in(shared, &session).await?;
        let node = Some(answer.extra.node.as_str()).filter(|node| !node.is_empty());
        let node: Option<Arc<str>> = node.map(Arc::from);
        let claim = NodeClaim { node: node.clone(), place };
        let Some(claim) = shared.claims.claim_node(self.slot, claim) else {
            session.go_away(Code::NONE, "").await;
            return Err(ConnectError::SameNode { is_only: false });
        };
        let latency = start_heartbeat(options, &session);
        let (slot, region) = (self.slot, answer.extra.region);
        let online = OnlineSession { session, slot, latency, region, node };
        Ok(ConnectedSession { online, incoming, claim })
    }

    /// Notes that a session which lived so long was lost.
    pub fn session_lost(&mut self, lived: Duration) {
        self.backoff.session_lost(lived, Instant::now());
    }

    /// How long to wait before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        self.backoff.next_pause(Instant::now())
    }

    /// Connects to the next address, when it is its time.
    async fn dial_next(&mut self, shared: &AgentInner) -> Result<ServiceConnection, ConnectError> {
        let limit = self.backoff.connect_timeout(shared.options.connect_timeout, Instant::now());
        let (name, way) = self.next_way(shared, limit).await?;
        let dialed = timeout(limit, way.dial(&name, &shared.tls, limit)).await;
        let dialed = dialed.unwrap_or_else(|_| Err(io::Error::other("no response")));
        let (place, stream) = dialed.map_err(|error| retriable_error(&name, error))?;
        Ok(ServiceConnection { name, place, stream })
    }

    async fn next_way(
        &mut self,
        shared: &AgentInner,
        limit: Duration,
    ) -> Result<(HostPort, ServiceWay), ConnectError> {
        let claims = &shared.claims;
        loop {
            let other = claims.get(self.slot.other());
            if other != self.other {
                self.addresses.wake_addresses();
                self.other = other;
            }
            let occupied = self.other.as_ref().map(|other| &other.place);
            let next = self.addresses.next(&shared.proxies, occupied, Instant::now(), limit).await;
            match next.map_err(|(name, error)| retriable_error(&name, error))? {
                NextAddress::Try { name, addresses } => {
                    return Ok((name, ServiceWay::Direct(addresses)));
                }
                NextAddress::TryThrough { name, proxy } => {
                    return Ok((name, ServiceWay::Through(proxy)));
                }
                NextAddress::Rest(until) => {
                    let changed = claims.wait_for_change(self.slot.other(), self.other.as_ref());
                    let rested = timeout_at(until.into(), changed).await;
                    ignore(rested, "the rest is over, or has no reason any more");
                }
            }
        }
    }

    async fn log_in(
        &mut self,
        shared: &AgentInner,
        session: &MuxSession,
    ) -> Result<AuthAnswer, ConnectError> {
        let mut auth = auth_request(&shared.options, &self.client_id, &self.cookie);
        let other = self.other.as_ref().and_then(|other| other.node.as_deref());
        auth.extra.other_node = other.unwrap_or_default().to_owned();
        let rules_header = shared.rules_header.as_ref().map(ToString::to_string);
        auth.extra.rules_header = rules_header.unwrap_or_default();
        let answer = rpc::call(session, &auth, RPC_TIMEOUT).await;
        let answer = answer.map_err(|error| ConnectError::Retriable(error.to_string()))?;
        if let Some(failure) = answer.failure() {
            session.close();
            return Err(match failure.code_number() {
                Some(SAME_NODE_CODE) => {
                    ConnectError::SameNode { is_only: answer.extra.is_only_node }
                }
                Some(code) if CREDENTIAL_CODES.contains(&code) => {
                    ConnectError::Credential(failure.to_string())
                }
                _ => ConnectError::Retriable(failure.to_string()),
            });
        }
        answer.client_id.clone_into(&mut self.client_id);
        self.cookie = answer.extra.cookie.clone();
        Ok(answer)
    }
}

fn retriable_error(name: &HostPort, problem: impl Display) -> ConnectError {
    ConnectError::Retriable(format!("{name}: {problem}"))
}

/// Sends heartbeats for as long as the session lives; returns how long they take.
fn start_heartbeat(
    options: &AgentOptions,
    session: &MuxSession,
) -> watch::Receiver<Option<Duration>> {
    let beat =
        heartbeat::start_steady(session, options.heartbeat_interval, options.heartbeat_tolerance);
    let latency = beat.watch_latency();
    let alive = session.clone();
    ginnel_base::tasks::spawn(async move {
        alive.wait_until_ended().await;
        drop(beat);
    });
    latency
}

/// The way to an address of the service.
enum ServiceWay {
    /// To the first of these that accepts.
    Direct(Vec<SocketAddr>),
    Through(Proxy),
}

impl ServiceWay {
    /// Connects, and begins TLS with the service.
    async fn dial(
        &self,
        name: &HostPort,
        tls: &Arc<ClientConfig>,
        limit: Duration,
    ) -> io::Result<(ServicePlace, ServiceStream)> {
        let role = DialRole::AgentSession;
        let (place, stream) = match self {
            Self::Direct(addresses) => {
                let stream = dial_any(role, addresses).await?;
                (stream.peer_addr()?.into(), ProxyStream::Plain(stream))
            }
            Self::Through(proxy) => {
                let stream = dial_through_proxy(role, proxy, name, tls, limit).await?;
                (ServicePlace::Proxied(name.clone()), stream)
            }
        };
        stream.socket().set_nodelay(true)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
        socket2::SockRef::from(stream.socket()).set_tcp_keepalive(&keepalive)?;
        let connector = TlsConnector::from(tls.clone());
        Ok((place, connector.connect(server_name(&name.host)?, stream).await?))
    }
}

fn auth_request(options: &AgentOptions, client_id: &str, cookie: &Hidden) -> Auth {
    let nanoseconds = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let supported = |yes: bool| {
        Some(if yes { String::new() } else { "remote management is switched off".to_owned() })
    };
    let version = env!("CARGO_PKG_VERSION");
    Auth {
        version: vec!["3".to_owned(), "2".to_owned()],
        client_id: client_id.to_owned(),
        extra: AuthExtra {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            auth_token: options.authtoken.0.as_str().into(),
            version: version.to_owned(),
            client_type: "ginnel".to_owned(),
            user_agent: format!("ginnel/{version}"),
            metadata: options.metadata.clone(),
            cookie: cookie.clone(),
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
