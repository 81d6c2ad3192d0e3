//! Binding tunnels at the service.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use ginnel_base::logging::or_debug;
use ginnel_mux::MuxSession;
use ginnel_mux::protocol::message::{Bind, BindLabeled, RemoteError, Unbind};
use ginnel_mux::protocol::rpc;

use super::RPC_TIMEOUT;
use crate::backoff::{Backoff, MAX_PAUSE};
use crate::definition::BindMessage;
use crate::inner::AgentInner;
use crate::session_state::{OnlineSession, SessionState};
use crate::slot::SessionSlot;
use crate::tunnels::{BoundEndpoint, RunningTunnel};

/// The codes of what a person must change first: a value of the tunnel's definition, or the access
/// list of the authtoken.
const DEFINITION_CODES: [u16; 2] = [215, 600];
/// The code for an address at which another endpoint is online.
const ENDPOINT_TAKEN_CODE: u16 = 334;

/// Why a tunnel was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The definition is wrong, one line for each problem.
    #[error("{}", .0.join("\n"))]
    Definition(Vec<String>),
    /// The service did not bind it.
    #[error(transparent)]
    Bind(#[from] TunnelBindError),
}

/// Why a bind failed.
#[derive(Debug, thiserror::Error)]
pub enum TunnelBindError {
    /// There is no session with the service.
    #[error("a successful session has not been established")]
    Offline,
    /// The session broke meanwhile, or the service did not answer.
    #[error("the session was lost: {0}")]
    Lost(#[from] rpc::RpcError),
    /// The service refused it.
    #[error("{0}")]
    Refused(RemoteError),
    /// Another node gave it another address than the one at which visitors reach it.
    #[error("another node gave it the address {0}")]
    OtherAddress(String),
}

impl TunnelBindError {
    /// Whether the service itself failed; nothing is wrong with what it was asked for.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Refused(failure) if !needs_person(failure) && !is_taken(failure))
    }
}

/// Binds the tunnels that there are; only then the session is online. Those that the service refuses
/// are tried again for as long as the session lives, as are those that it takes the address from, and those
/// that are started in the other session are bound in this one as well.
pub(super) async fn keep_bound(shared: &AgentInner, online: &OnlineSession) {
    let mut due_tunnels = shared.tunnels.subscribe_due();
    let mut refused = bind_some(shared, online, unbound_tunnels(shared, online.slot, &[])).await;
    shared.state.send_modify(|state| state.insert(online.clone()));
    let mut backoff = Backoff::new(Instant::now());
    let mut due = next_attempt(&refused, &mut backoff);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(due.into()), if !refused.is_empty() => {
                let again = refused.into_iter().map(|refused| refused.tunnel).collect();
                refused = bind_some(shared, online, again).await;
                due = next_attempt(&refused, &mut backoff);
            }
            changed = due_tunnels.changed() => {
                // The sender lives as long as the agent.
                if changed.is_err() { return }
                let was_idle = refused.is_empty();
                let new = unbound_tunnels(shared, online.slot, &refused);
                refused.extend(bind_some(shared, online, new).await);
                if was_idle {
                    backoff = Backoff::new(Instant::now());
                    due = next_attempt(&refused, &mut backoff);
                }
            }
        }
        shared.state.send_modify(|_| {});
    }
}

/// When refused tunnels are tried again.
fn next_attempt(refused: &[RefusedTunnel], backoff: &mut Backoff) -> Instant {
    let now = Instant::now();
    let can_succeed = refused.iter().any(|refused| refused.is_retriable);
    now + if can_succeed { backoff.next_pause(now) } else { MAX_PAUSE }
}

/// The tunnels that are not bound in a session, but for those that were refused there. One that is being
/// started is for its starter to bind.
fn unbound_tunnels(
    shared: &AgentInner,
    slot: SessionSlot,
    refused: &[RefusedTunnel],
) -> Vec<Arc<RunningTunnel>> {
    let is_refused =
        |tunnel: &_| refused.iter().any(|refused| Arc::ptr_eq(&refused.tunnel, tunnel));
    let mut tunnels = shared.tunnels.all();
    tunnels.retain(|it| it.is_started() && !it.is_bound(slot) && !is_refused(it));
    tunnels
}

/// A tunnel that the service has refused.
struct RefusedTunnel {
    tunnel: Arc<RunningTunnel>,
    /// The service may bind it later, although nobody changes anything.
    is_retriable: bool,
}

/// Binds tunnels one after another; returns those that the service refuses.
async fn bind_some(
    shared: &AgentInner,
    online: &OnlineSession,
    tunnels: Vec<Arc<RunningTunnel>>,
) -> Vec<RefusedTunnel> {
    let mut refused = Vec::new();
    for tunnel in tunnels {
        if !shared.tunnels.is_running(&tunnel) || shared.is_stopping() {
            continue;
        }
        match rebind_tunnel(online, &tunnel).await {
            // It was stopped meanwhile, when nobody could tell the service.
            Ok(()) if !shared.tunnels.is_running(&tunnel) => unbind_tunnel(online, &tunnel).await,
            Ok(()) => {}
            // The next session is for it, and the addresses with it.
            Err(TunnelBindError::Offline | TunnelBindError::Lost(_)) => {
                online.session.close();
                break;
            }
            Err(TunnelBindError::Refused(failure)) => {
                let is_retriable = !needs_person(&failure);
                shared.record_unbound(&tunnel, online.slot, &failure);
                refused.push(RefusedTunnel { tunnel, is_retriable });
            }
            Err(TunnelBindError::OtherAddress(url)) => {
                tracing::warn!(tunnel = %tunnel.name, url, "a node gave a tunnel another address");
                refused.push(RefusedTunnel { tunnel, is_retriable: true });
            }
        }
    }
    refused
}

/// Whether a bind is refused for something that somebody must change first.
fn needs_person(failure: &RemoteError) -> bool {
    failure.code_number().is_some_and(|it| DEFINITION_CODES.contains(&it))
}

/// Binds a tunnel; what the service gave is noted in it.
pub(crate) async fn bind_tunnel(
    online: &OnlineSession,
    tunnel: &RunningTunnel,
) -> Result<(), TunnelBindError> {
    bind_as(online, tunnel, tunnel.reserved_endpoint(online.slot)).await
}

/// Binds a tunnel as what the service gave before, or as something new.
async fn bind_as(
    online: &OnlineSession,
    tunnel: &RunningTunnel,
    before: BoundEndpoint,
) -> Result<(), TunnelBindError> {
    let session = &online.session;
    let (name, opts) = (tunnel.name.clone(), tunnel.options.clone());
    let bound = match tunnel.definition.bind_message(name, tunnel.proto, opts) {
        BindMessage::Endpoint(bind) => bind_endpoint(session, *bind, before).await?,
        BindMessage::Labeled(bind) => {
            BoundEndpoint { id: bind_labeled(session, &bind).await?, ..BoundEndpoint::default() }
        }
    };
    let (id, url) = (bound.id.clone(), bound.url.clone());
    if tunnel.set_bound(online.slot, bound) {
        return Ok(());
    }
    // Visitors know the address that it has in the other session.
    unbind_id(session, &tunnel.name, id).await;
    Err(TunnelBindError::OtherAddress(url.unwrap_or_default()))
}

async fn bind_endpoint(
    session: &MuxSession,
    mut bind: Bind,
    before: BoundEndpoint,
) -> Result<BoundEndpoint, TunnelBindError> {
    (bind.id, bind.extra.token) = (before.id, before.token);
    let answer = rpc::call(session, &bind, RPC_TIMEOUT).await?;
    match answer.failure() {
        Some(failure) => Err(TunnelBindError::Refused(failure)),
        None => {
            if answer.extra.took_over {
                tracing::warn!(url = answer.url, "took over the address of an agent that is gone");
            }
            Ok(BoundEndpoint { id: answer.id, token: answer.extra.token, url: Some(answer.url) })
        }
    }
}

async fn bind_labeled(session: &MuxSession, bind: &BindLabeled) -> Result<String, TunnelBindError> {
    let answer = rpc::call(session, bind, RPC_TIMEOUT).await?;
    match answer.failure() {
        Some(failure) => Err(TunnelBindError::Refused(failure)),
        None => Ok(answer.id),
    }
}

/// Binds a tunnel at its old address, or where that is gone at another. Where both are refused, the
/// old address stays reserved for it; a service that failed is not asked for another, and none is asked
/// for another while visitors reach the old one over the other session.
async fn rebind_tunnel(
    online: &OnlineSession,
    tunnel: &RunningTunnel,
) -> Result<(), TunnelBindError> {
    match bind_tunnel(online, tunnel).await {
        Err(TunnelBindError::Refused(failure))
            if (is_taken(&failure) || needs_person(&failure))
                && !tunnel.is_bound(online.slot.other()) =>
        {
            tracing::warn!(tunnel = %tunnel.name, err = %failure, "a tunnel has lost its address");
            bind_as(online, tunnel, BoundEndpoint::default()).await
        }
        other => other,
    }
}

/// Whether another endpoint is online at the address.
pub(super) fn is_taken(failure: &RemoteError) -> bool {
    failure.code_number() == Some(ENDPOINT_TAKEN_CODE)
}

/// Tells the service that a tunnel is over, where it is bound in this session.
pub(crate) async fn unbind_tunnel(online: &OnlineSession, tunnel: &RunningTunnel) {
    if let Some(id) = tunnel.bind_id(online.slot) {
        unbind_id(&online.session, &tunnel.name, id).await;
    }
}

/// Tells the service in all sessions that a tunnel is over.
pub(crate) async fn unbind_everywhere(state: &watch::Sender<SessionState>, tunnel: &RunningTunnel) {
    let sessions: Vec<_> = state.borrow().sessions().cloned().collect();
    for online in sessions {
        unbind_tunnel(&online, tunnel).await;
    }
}

async fn unbind_id(session: &MuxSession, tunnel: &str, id: String) {
    // A service that is gone has forgotten it anyway.
    let unbound = rpc::call(session, &Unbind { id, extra: None }, RPC_TIMEOUT).await;
    or_debug!(unbound, tunnel, "the service does not know that a tunnel is over");
}
