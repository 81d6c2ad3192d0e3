//! Binding tunnels at the service.

use std::sync::Arc;
use std::time::Instant;

use super::RPC_TIMEOUT;
use super::state::{OnlineSession, SessionState};
use crate::agent::backoff::{Backoff, MAX_PAUSE};
use crate::agent::definition::EndpointDefinition;
use crate::agent::inner::AgentInner;
use crate::agent::tunnels::{BoundEndpoint, RunningTunnel};
use crate::logging::or_debug;
use crate::mux::MuxSession;
use crate::protocol::message::{Bind, BindExtra, BindLabeled, RemoteError, Unbind};
use crate::protocol::rpc;

/// The codes of what a person must change first: a value of the tunnel's definition, or the access
/// list of the authtoken.
const DEFINITION_CODES: [u16; 2] = [215, 600];
/// The code for an address at which another endpoint is online.
const ENDPOINT_TAKEN_CODE: u16 = 334;

/// Why a tunnel was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
}

impl TunnelBindError {
    /// Whether the service itself failed; nothing is wrong with what it was asked for.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Refused(failure) if !needs_person(failure) && !is_taken(failure))
    }
}

/// Binds the tunnels that there are; only then the agent is online. Those that the service refuses
/// are tried again for as long as the session lives.
pub(super) async fn bind_all(shared: &AgentInner, online: &OnlineSession) {
    let mut refused = bind_some(shared, online, shared.tunnels.all()).await;
    shared.state.send_replace(SessionState::Online(online.clone()));
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
        if !shared.tunnels.has(&tunnel) || shared.is_stopping() {
            continue;
        }
        match rebind(&online.session, &tunnel).await {
            // It was stopped meanwhile, when nobody could tell the service.
            Ok(()) if !shared.tunnels.has(&tunnel) => {
                unbind(&online.session, &tunnel).await;
            }
            Ok(()) => {}
            // The next session is for it, and the addresses with it.
            Err(TunnelBindError::Offline | TunnelBindError::Lost(_)) => {
                online.session.close();
                break;
            }
            Err(TunnelBindError::Refused(failure)) => {
                let is_retriable = !needs_person(&failure);
                shared.note_unbound(&tunnel, &failure);
                refused.push(RefusedTunnel { tunnel, is_retriable });
            }
        }
    }
    refused
}

/// Whether a bind is refused for something that somebody must change first.
fn needs_person(failure: &RemoteError) -> bool {
    failure.number().is_some_and(|it| DEFINITION_CODES.contains(&it))
}

/// Binds a tunnel; what the service gave is noted in it.
pub(in crate::agent) async fn bind(
    session: &MuxSession,
    tunnel: &RunningTunnel,
) -> Result<(), TunnelBindError> {
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
            let answer = rpc::call(session, &bind, RPC_TIMEOUT).await?;
            if let Some(failure) = answer.failure() {
                return Err(TunnelBindError::Refused(failure));
            }
            BoundEndpoint { id: answer.id, token: answer.extra.token, url: Some(answer.url) }
        }
        None => {
            BoundEndpoint { id: bind_labeled(session, tunnel).await?, ..BoundEndpoint::default() }
        }
    };
    tunnel.set_bound(bound);
    tunnel.set_online();
    Ok(())
}

async fn bind_labeled(
    session: &MuxSession,
    tunnel: &RunningTunnel,
) -> Result<String, TunnelBindError> {
    let labels = match &tunnel.definition.public {
        EndpointDefinition::Labeled(labels) => labels.clone(),
        _ => Default::default(),
    };
    let bind = BindLabeled {
        labels,
        forwards_to: tunnel.definition.address.shown(),
        forwards_proto: String::new(),
        metadata: tunnel.definition.metadata.clone(),
    };
    let answer = rpc::call(session, &bind, RPC_TIMEOUT).await?;
    match answer.failure() {
        Some(failure) => Err(TunnelBindError::Refused(failure)),
        None => Ok(answer.id),
    }
}

/// Binds a tunnel at its old address, or where that is gone at another. Where both are refused, the
/// old address stays reserved for it; a service that failed is not asked for another.
async fn rebind(session: &MuxSession, tunnel: &RunningTunnel) -> Result<(), TunnelBindError> {
    let before = tunnel.bound();
    match bind(session, tunnel).await {
        Err(TunnelBindError::Refused(failure)) if is_taken(&failure) || needs_person(&failure) => {
            tunnel.set_bound(BoundEndpoint::default());
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
fn is_taken(failure: &RemoteError) -> bool {
    failure.number() == Some(ENDPOINT_TAKEN_CODE)
}

/// Tells the service that a tunnel is over.
pub(in crate::agent) async fn unbind(session: &MuxSession, tunnel: &RunningTunnel) {
    let unbind = Unbind { id: tunnel.bound().id, extra: None };
    // A service that is gone has forgotten it anyway.
    let unbound = rpc::call(session, &unbind, RPC_TIMEOUT).await;
    or_debug!(unbound, tunnel = %tunnel.name, "the service was not told that a tunnel is over");
}
