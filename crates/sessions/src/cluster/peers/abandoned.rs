//! Binds of agents that are gone, on the nodes that hold them.
//!
//! An agent has a bind on several nodes. Before another agent of the account gets the address, each of them says that its
//! session is gone, and gives the bind up.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use ginnel_mux::Stream;
use ginnel_mux::protocol::rpc::{self, IncomingCall, RpcRequest};
use serde::{Deserialize, Serialize};

use super::PeerServices;
use super::link::Linker;
use super::message::kind;
use crate::cluster::member::EndingAtNode;

/// Five seconds of silence there, and the way.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(6);

/// A node asks another to end a bind whose agent is gone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AbandonedBind {
    pub bind_id: String,
}

/// The answer of the other node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AbandonedBindAnswer {
    /// True if the node does not have the bind any more.
    pub is_ended: bool,
}

impl RpcRequest for AbandonedBind {
    const KIND: u32 = kind::ABANDONED;
    type Answer = AbandonedBindAnswer;
}

impl PeerServices {
    /// Ends a bind of this node for another one, if its agent is gone.
    pub(super) async fn end_abandoned_bind(&self, stream: Stream) -> io::Result<()> {
        let call =
            IncomingCall::read_message(kind::ABANDONED, stream).await.map_err(io::Error::other)?;
        let AbandonedBind { bind_id } = call.decode_message().map_err(io::Error::other)?;
        let is_ended = self.registry.end_abandoned_bind(&bind_id, None).await;
        call.send_response(&AbandonedBindAnswer { is_ended }).await.map_err(io::Error::other)
    }
}

/// Returns the function that ends binds at other nodes.
pub(super) fn ending_at_nodes(linker: Weak<Linker>) -> EndingAtNode {
    Box::new(move |node_id, bind_id| Box::pin(end_at_node(linker.clone(), node_id, bind_id)))
}

async fn end_at_node(linker: Weak<Linker>, node_id: String, bind_id: String) -> bool {
    let session = linker.upgrade().and_then(|linker| linker.sessions.get(&node_id));
    let Some(session) = session else {
        tracing::debug!(node = node_id, "there is no session with a node that holds an address");
        return false;
    };
    match rpc::call(&session.mux, &AbandonedBind { bind_id }, RESPONSE_TIMEOUT).await {
        Ok(AbandonedBindAnswer { is_ended }) => is_ended,
        Err(err) => {
            tracing::debug!(node = node_id, %err, "a node does not end the bind of a lost agent");
            false
        }
    }
}
