//! The session with the service: connecting, serving it, and coming back.

mod bind;
mod connect;
mod requests;
pub(super) mod state;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::inner::AgentInner;
use super::tunnels::RunningTunnel;
use crate::mux::{Code, Incoming};
use crate::net::ShutdownPhase;
use crate::protocol::message::RemoteError;
pub use bind::{StartError, TunnelBindError};
pub(super) use bind::{bind, unbind};
use connect::{ConnectError, connect};
pub use state::{OnlineSession, SessionFailure, SessionHistory, SessionState};

/// How long an answer of the service may take.
const RPC_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects, and connects again whenever the link is lost, until the agent stops.
pub(super) async fn run(shared: Arc<AgentInner>) {
    let mut shutdown = shared.shutdown.signal();
    let mut backoff = Backoff::new(Instant::now());
    loop {
        let connecting = connect(&shared, &backoff);
        let Some(connected) = shutdown.run_until(ShutdownPhase::Graceful, connecting).await else {
            break;
        };
        match connected {
            Ok((online, incoming)) => {
                let began = Instant::now();
                tracing::info!(address = shared.options.server_addr, "connected to the service");
                let serving = serve_session(&shared, online, incoming);
                match shutdown.run_until(ShutdownPhase::Forced, serving).await {
                    Some(reason) => shared.note_lost(&reason),
                    None => break,
                }
                backoff.session_lost(began.elapsed(), Instant::now());
            }
            Err(ConnectError::Credential(reason)) => {
                shared.note_refused(reason);
                break;
            }
            Err(ConnectError::Retriable(reason)) => shared.note_disconnected(&reason),
        }
        let pause = tokio::time::sleep(backoff.next_pause(Instant::now()));
        if shutdown.run_until(ShutdownPhase::Graceful, pause).await.is_none() {
            break;
        }
    }
    if let SessionState::Online(online) = shared.state.send_replace(SessionState::Offline) {
        // The service need not wait for a heartbeat to see that we are gone.
        online.session.go_away(Code::NONE, "").await;
    }
}

/// Serves a session until it is lost; returns why it was.
async fn serve_session(
    shared: &Arc<AgentInner>,
    online: OnlineSession,
    mut incoming: Incoming,
) -> String {
    let serving = async {
        while let Some(stream) = incoming.next().await {
            tokio::spawn(requests::serve(shared.clone(), online.session.clone(), stream));
        }
    };
    let binding = async {
        tokio::select! {
            () = bind::bind_all(shared, &online) => {}
            _ = online.session.ended() => {}
        }
    };
    // Visitors and heartbeats do not wait for the last of many tunnels.
    tokio::join!(binding, serving);
    online.session.ended().await.to_string()
}

impl AgentInner {
    fn update_history(&self, change: impl FnOnce(&mut SessionHistory)) {
        change(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Looks at what is remembered.
    pub(super) fn with_history<T>(&self, look: impl FnOnce(&SessionHistory) -> T) -> T {
        look(&self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_stopping(&self) -> bool {
        self.shutdown.phase() >= ShutdownPhase::Graceful
    }

    /// Notes that the link was lost.
    fn note_lost(&self, reason: &str) {
        if !self.is_stopping() {
            self.update_history(|history| history.reconnects += 1);
        }
        self.note_disconnected(reason);
    }

    /// Notes why there is no link, and tells those who watch.
    fn note_disconnected(&self, reason: &str) {
        tracing::info!(err = reason, "not connected to the service");
        self.update_history(|history| history.add_failure(reason.to_owned()));
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_reconnecting(reason));
        self.state.send_modify(|state| {
            if !matches!(state, SessionState::Connecting) {
                *state = SessionState::Reconnecting;
            }
        });
    }

    /// Notes why a tunnel has no address for now.
    fn note_unbound(&self, tunnel: &RunningTunnel, failure: &RemoteError) {
        tunnel.set_reconnecting(&failure.to_string());
        tracing::warn!(tunnel = %tunnel.name, err = %failure, "a tunnel was refused");
        let problem = format!("tunnel {}: {failure}", tunnel.name);
        self.update_history(|history| history.add_failure(problem));
    }

    /// Notes that the service refuses the authtoken.
    fn note_refused(&self, reason: String) {
        tracing::warn!(err = reason, "the service refuses the agent");
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_refused(&reason));
        self.update_history(|history| {
            history.add_failure(reason.clone());
            history.refusal = Some(reason);
        });
    }
}
