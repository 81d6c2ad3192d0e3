//! Connecting to the service, and introducing oneself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::RPC_TIMEOUT;
use super::state::{OnlineSession, SessionHistory};
use crate::agent::backoff::Backoff;
use crate::agent::inner::AgentInner;
use crate::agent::options::AgentOptions;
use crate::mux::{Incoming, MuxSession, Side, heartbeat};
use crate::net::tls::server_name;
use crate::protocol::message::{Auth, AuthExtra};
use crate::protocol::rpc;

/// The codes by which a service refuses the credential itself: the authtoken is malformed, of a form
/// that is no longer taken, unknown or revoked, or missing.
const CREDENTIAL_CODES: [u16; 4] = [105, 106, 107, 4018];

/// Why a connection was not made.
pub(super) enum ConnectError {
    /// It may work later.
    Retriable(String),
    /// The service refuses the authtoken.
    Credential(String),
}

/// Connects to the service and logs in.
pub(super) async fn connect(
    shared: &Arc<AgentInner>,
    backoff: &Backoff,
) -> Result<(OnlineSession, Incoming), ConnectError> {
    let options = &shared.options;
    let address = &options.server_addr;
    let limit = backoff.connect_timeout(options.connect_timeout, Instant::now());
    let stream = match tokio::time::timeout(limit, dial(options, &shared.tls)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(ConnectError::Retriable(format!("{address}: {error}"))),
        Err(_) => return Err(ConnectError::Retriable(format!("{address}: no response"))),
    };
    let (session, incoming) = MuxSession::start(stream, Side::Agent);
    let auth = shared.with_history(|history| auth_request(options, history));
    let answer = rpc::call(&session, &auth, RPC_TIMEOUT).await;
    let answer = answer.map_err(|error| ConnectError::Retriable(error.to_string()))?;
    if let Some(failure) = answer.failure() {
        session.close();
        let is_credential = failure.number().is_some_and(|it| CREDENTIAL_CODES.contains(&it));
        let kind = if is_credential { ConnectError::Credential } else { ConnectError::Retriable };
        return Err(kind(failure.to_string()));
    }
    shared.update_history(|history| {
        history.client_id = answer.client_id;
        history.cookie = answer.extra.cookie;
    });
    let beat = heartbeat::keep(&session, options.heartbeat_interval, options.heartbeat_tolerance);
    let latency = beat.watch();
    let alive = session.clone();
    tokio::spawn(async move {
        alive.ended().await;
        drop(beat);
    });
    Ok((OnlineSession { session, latency, region: answer.extra.region }, incoming))
}

async fn dial(
    options: &AgentOptions,
    tls: &Arc<ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(&options.server_addr).await?;
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let name = server_name(&options.server_addr)?;
    TlsConnector::from(tls.clone()).connect(name, stream).await
}

fn auth_request(options: &AgentOptions, history: &SessionHistory) -> Auth {
    let nanoseconds = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let supported = |yes: bool| {
        Some(if yes { String::new() } else { "remote management is switched off".to_owned() })
    };
    let version = env!("CARGO_PKG_VERSION");
    Auth {
        version: vec!["3".to_owned(), "2".to_owned()],
        client_id: history.client_id.clone(),
        extra: AuthExtra {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            auth_token: options.authtoken.0.as_str().into(),
            version: version.to_owned(),
            client_type: "ginnel".to_owned(),
            user_agent: format!("ginnel/{version}"),
            metadata: options.metadata.clone(),
            cookie: history.cookie.clone(),
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
