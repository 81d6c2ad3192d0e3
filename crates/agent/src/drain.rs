//! Ending gracefully: no new visitors, and time for those who are being served.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use ginnel_base::logging::or_debug;
use ginnel_net::ShutdownPhase;

use super::inner::AgentInner;
use super::session;
use super::session_state::{OnlineSessions, SessionState};
use super::tunnels::RunningTunnel;

/// How long the service may take to confirm that it sends no more visitors.
const UNBIND_TIMEOUT: Duration = Duration::from_secs(1);
/// How many tunnels are unbound at once: a service takes only so many calls.
const UNBINDS_AT_ONCE: usize = 32;
/// How long one tunnel may take to finish what it carries, where others go on at its URL.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells the service to send no more visitors, and lets those finish who are being served, for as
/// long as `grace`.
pub(super) async fn drain_agent(shared: &AgentInner, grace: Duration) {
    shared.shutdown.begin_phase(ShutdownPhase::Graceful);
    // Without a session nobody is being served.
    let SessionState::Online(sessions) = shared.state.borrow().clone() else { return };
    let tunnels = shared.tunnels.all();
    tokio::select! {
        () = drain_tunnels(&sessions, &tunnels, grace) => {}
        () = all_ended(&sessions) => {}
    }
}

/// As [`drain_agent`], for one tunnel.
pub(super) async fn drain_tunnel(shared: &AgentInner, tunnel: &Arc<RunningTunnel>) {
    let SessionState::Online(sessions) = shared.state.borrow().clone() else { return };
    drain_tunnels(&sessions, std::slice::from_ref(tunnel), shared.options.grace.min(LEAVE_TIMEOUT))
        .await;
}

async fn all_ended(sessions: &OnlineSessions) {
    for online in sessions.iter() {
        online.session.wait_until_ended().await;
    }
}

/// What is left when the time is over is cut off by the caller.
async fn drain_tunnels(sessions: &OnlineSessions, tunnels: &[Arc<RunningTunnel>], grace: Duration) {
    let began = Instant::now();
    tunnels.iter().for_each(|tunnel| tunnel.set_stopping());
    or_debug!(
        timeout(UNBIND_TIMEOUT, unbind_all(sessions, tunnels)).await,
        "the service was not told of all tunnels that are over"
    );
    tunnels.iter().for_each(|tunnel| tunnel.start_drain());
    let finishing = async {
        for tunnel in tunnels {
            tunnel.wait_until_finished().await;
        }
    };
    or_debug!(
        timeout(grace.saturating_sub(began.elapsed()), finishing).await,
        "visitors are cut off at the end of the grace period"
    );
}

async fn unbind_all(sessions: &OnlineSessions, tunnels: &[Arc<RunningTunnel>]) {
    let bound = |tunnel| sessions.iter().map(move |online| (online.clone(), Arc::clone(tunnel)));
    let all: Vec<_> = tunnels.iter().flat_map(bound).collect();
    for some in all.chunks(UNBINDS_AT_ONCE) {
        let mut unbinding = JoinSet::new();
        for (online, tunnel) in some {
            let (online, tunnel) = (online.clone(), tunnel.clone());
            unbinding.spawn(async move { session::unbind_tunnel(&online, &tunnel).await });
        }
        unbinding.join_all().await;
    }
}
