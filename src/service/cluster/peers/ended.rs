//! Tunnels that have ended, for the other nodes, before the database says so.
//!
//! Without the database a node cannot remove the row of a tunnel whose agent it has lost. Others would lead
//! visitors to it, although the agent may have the tunnel at a third node as well.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::link::Linker;
use super::message::kind;
use crate::logging::or_debug;
use crate::mux::{MuxSession, Stream};
use crate::protocol::rpc::{self, IncomingCall, RpcRequest};
use crate::service::cluster::Cluster;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a failure it is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How many tunnels one message names at most.
const MAX_TUNNELS: usize = 1000;

/// A node says which of its tunnels have ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EndedTunnels {
    /// Their identifiers.
    pub ids: Vec<String>,
}

/// The other node knows it now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct EndedNoted {}

impl RpcRequest for EndedTunnels {
    const KIND: u32 = kind::ENDED;
    type Answer = EndedNoted;
}

impl Linker {
    /// Notes which tunnels of another node have ended.
    pub(super) async fn note_ended(&self, stream: Stream) -> io::Result<()> {
        let call = IncomingCall::read(kind::ENDED, stream).await.map_err(io::Error::other)?;
        let EndedTunnels { ids } = call.decode().map_err(io::Error::other)?;
        self.directory.note_ended(ids);
        call.answer(&EndedNoted::default()).await.map_err(io::Error::other)
    }
}

/// Tells another node which tunnels of this one have ended, each once, until the session with it is over.
pub(super) async fn tell(cluster: Arc<Cluster>, session: MuxSession) {
    let mut ended = cluster.ended_tunnels();
    let mut sent = BTreeSet::new();
    loop {
        let now = ended.borrow_and_update().clone();
        sent.retain(|id| now.contains(id));
        let fresh: Vec<_> = now.difference(&sent).cloned().collect();
        for ids in fresh.chunks(MAX_TUNNELS) {
            let message = EndedTunnels { ids: ids.to_vec() };
            let noted = rpc::call(&session, &message, RESPONSE_TIMEOUT).await;
            if or_debug!(noted, "another node does not learn which tunnels have ended").is_some() {
                sent.extend(message.ids);
            }
        }
        let wait = if now.is_subset(&sent) { Duration::MAX } else { RETRY_INTERVAL };
        if let Ok(Err(_)) = timeout(wait, ended.changed()).await {
            return;
        }
    }
}
