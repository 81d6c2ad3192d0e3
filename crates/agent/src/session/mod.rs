//! The sessions with the service: connecting, serving them, and coming back.
//!
//! An agent keeps one session. Where the service says at the login which of its nodes it is, the agent
//! keeps a second one to another node (`node_claims`), over which the same tunnels are bound: whichever node is
//! lost, visitors reach them through the other. Both are kept by the same code, each in its slot; neither
//! is the main one. A service that names no node is one place, and gets one session.

mod addresses;
mod bind;
mod connect;
mod requests;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use chrono::Local;
use tokio::time::sleep;

use super::inner::AgentInner;
use super::session_state::{OnlineSession, SessionHistory, SessionState};
use super::slot::SessionSlot;
use super::tunnels::RunningTunnel;
pub use bind::{StartError, TunnelBindError};
pub(super) use bind::{bind_tunnel, unbind_everywhere, unbind_tunnel};
use connect::{ConnectError, ConnectedSession, SessionKeeper};
use ginnel_base::logging::ignore;
use ginnel_mux::protocol::message::RemoteError;
use ginnel_mux::{Code, Incoming};
use ginnel_net::ShutdownPhase;

/// How long an answer of the service may take.
const RPC_TIMEOUT: Duration = Duration::from_secs(10);

/// The service refuses the agent for good.
struct Refused;

/// Connects, and connects again whenever the link is lost, until the agent stops.
pub(super) async fn run_sessions(shared: Arc<AgentInner>) {
    let ended =
        tokio::try_join!(keep_session(&shared, SessionSlot::First), keep_second_session(&shared));
    ignore(ended, "the refusal is noted");
    let state = shared.state.send_replace(SessionState::Offline);
    let mut leaving = state.sessions().map(|online| online.session.go_away(Code::NONE, ""));
    // The service need not wait for a heartbeat to see that we are gone.
    tokio::join!(await_optional(leaving.next()), await_optional(leaving.next()));
}

async fn await_optional(goodbye: Option<impl Future<Output = ()>>) {
    if let Some(goodbye) = goodbye {
        goodbye.await;
    }
}

/// Keeps the second session, as soon as it is known that the service has several nodes.
async fn keep_second_session(shared: &Arc<AgentInner>) -> Result<(), Refused> {
    let mut state = shared.state.subscribe();
    let named = async {
        let named = state.wait_for(|state| state.sessions().any(|online| online.node.is_some()));
        named.await.map(drop)
    };
    let mut shutdown = shared.shutdown.signal();
    match shutdown.run_until(ShutdownPhase::Graceful, named).await {
        // Most agents have no second session, and so no room for it.
        Some(_) => Box::pin(keep_session(shared, SessionSlot::Second)).await,
        None => Ok(()),
    }
}

/// Keeps the session of a slot until the agent stops, or is refused.
async fn keep_session(shared: &Arc<AgentInner>, slot: SessionSlot) -> Result<(), Refused> {
    let mut shutdown = shared.shutdown.signal();
    let mut keeper = SessionKeeper::new(&shared.options, slot);
    loop {
        let connecting = keeper.connect(shared);
        let Some(connected) = shutdown.run_until(ShutdownPhase::Graceful, connecting).await else {
            return Ok(());
        };
        match connected {
            Ok(connected) => {
                let began = Instant::now();
                let serving = serve_session(shared, connected);
                match shutdown.run_until(ShutdownPhase::Forced, serving).await {
                    Some(reason) => shared.record_lost(slot, &reason),
                    None => return Ok(()),
                }
                keeper.session_lost(began.elapsed());
            }
            // The other node knows the token: this one may be late.
            Err(ConnectError::Credential(reason)) if shared.has_other(slot) => {
                shared.record_disconnected(slot, &reason);
            }
            Err(ConnectError::Credential(reason)) => {
                shared.record_refused(reason);
                return Err(Refused);
            }
            Err(ConnectError::Retriable(reason)) => shared.record_disconnected(slot, &reason),
            // Its address rests; another may be tried at once.
            Err(ConnectError::SameNode { .. }) => continue,
        }
        let pause = keeper.next_pause();
        shared.update_history(|history| history.next_attempt = Some(Local::now() + pause));
        if shutdown.run_until(ShutdownPhase::Graceful, sleep(pause)).await.is_none() {
            return Ok(());
        }
    }
}

/// Serves a session until it is lost; returns why it was.
async fn serve_session(shared: &Arc<AgentInner>, connected: ConnectedSession) -> String {
    let ConnectedSession { online, mut incoming, claim: _claim } = connected;
    let serving = serve_streams(shared, &online, &mut incoming);
    let binding = async {
        tokio::select! {
            () = bind::keep_bound(shared, &online) => {}
            _ = online.session.wait_until_ended() => {}
        }
    };
    // Visitors and heartbeats do not wait for the last of many tunnels.
    tokio::join!(binding, serving);
    online.session.wait_until_ended().await.to_string()
}

async fn serve_streams(shared: &Arc<AgentInner>, online: &OnlineSession, incoming: &mut Incoming) {
    while let Some(stream) = incoming.next().await {
        tokio::spawn(requests::serve_stream(shared.clone(), online.clone(), stream));
    }
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

    /// Whether the other session has logged in.
    fn has_other(&self, slot: SessionSlot) -> bool {
        self.claims.get(slot.other()).is_some()
    }

    /// Notes that a session was lost.
    fn record_lost(&self, slot: SessionSlot, reason: &str) {
        if !self.is_stopping() {
            self.update_history(|history| history.reconnects += 1);
        }
        self.record_disconnected(slot, reason);
    }

    /// Notes why a session is not there, and tells those who watch.
    fn record_disconnected(&self, slot: SessionSlot, reason: &str) {
        if self.has_other(slot) {
            tracing::info!(err = reason, "one of two sessions with the service is not there");
        } else {
            tracing::info!(err = reason, "not connected to the service");
        }
        self.update_history(|history| history.add_failure(reason.to_owned()));
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_unbound(slot, reason));
        self.state.send_modify(|state| state.remove(slot));
    }

    /// Notes why a tunnel is not bound in a session for now.
    fn record_unbound(&self, tunnel: &RunningTunnel, slot: SessionSlot, failure: &RemoteError) {
        tunnel.set_unbound(slot, &failure.to_string());
        tracing::warn!(tunnel = %tunnel.name, err = %failure, "a tunnel was refused");
        let problem = format!("tunnel {}: {failure}", tunnel.name);
        self.update_history(|history| history.add_failure(problem));
    }

    /// Notes that the service refuses the authtoken.
    fn record_refused(&self, reason: String) {
        tracing::warn!(err = reason, "the service refuses the agent");
        self.tunnels.all().iter().for_each(|tunnel| tunnel.set_refused(&reason));
        self.update_history(|history| {
            history.add_failure(reason.clone());
            history.refusal = Some(reason);
        });
    }
}
