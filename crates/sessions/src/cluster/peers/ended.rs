//! Tunnels that have ended, for the other nodes, before the database says so.
//!
//! Without the database a node cannot remove the row of a tunnel whose agent it has lost. Others would lead
//! visitors to it, although the agent may have the tunnel at a third node as well.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use ginnel_base::logging::or_debug;
use ginnel_mux::protocol::rpc::{self, IncomingCall, RpcRequest};
use ginnel_mux::{MuxSession, Stream};

use super::link::Linker;
use super::message::kind;
use crate::cluster::Cluster;

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
    /// The labels of tunnels whose agents were lost and not stopped: visitors wait for them a moment.
    pub lost: Vec<BTreeMap<String, String>>,
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
    pub(super) async fn receive_ended_tunnels(&self, stream: Stream) -> io::Result<()> {
        let call =
            IncomingCall::read_message(kind::ENDED, stream).await.map_err(io::Error::other)?;
        let EndedTunnels { ids, lost } = call.decode_message().map_err(io::Error::other)?;
        self.directory.record_lost(&lost);
        if !ids.is_empty() {
            self.directory.record_ended(ids);
        }
        call.send_response(&EndedNoted::default()).await.map_err(io::Error::other)
    }
}

/// Tells another node which tunnels of this one have ended, each once, until the session with it is over.
///
/// What was lost is sent once: by the time that it could be sent again, nobody would wait for it.
pub(super) async fn send_ended_tunnels(cluster: Arc<Cluster>, session: MuxSession) {
    let (mut ended, mut losses) = (cluster.ended_tunnels(), cluster.lost_labels());
    let (mut sent, mut lost) = (BTreeSet::new(), Vec::new());
    loop {
        while lost.len() < MAX_TUNNELS
            && let Ok(labels) = losses.try_recv()
        {
            lost.push(labels);
        }
        let now = ended.borrow_and_update().clone();
        sent.retain(|id| now.contains(id));
        let fresh: Vec<_> = now.difference(&sent).take(MAX_TUNNELS).cloned().collect();
        if !fresh.is_empty() || !lost.is_empty() {
            let message = EndedTunnels { ids: fresh, lost: std::mem::take(&mut lost) };
            let noted = rpc::call(&session, &message, RESPONSE_TIMEOUT).await;
            if or_debug!(noted, "another node does not learn which tunnels have ended").is_some() {
                sent.extend(message.ids);
                continue;
            }
        }
        let wait = if now.is_subset(&sent) { Duration::MAX } else { RETRY_INTERVAL };
        tokio::select! {
            changed = timeout(wait, ended.changed()) => if let Ok(Err(_)) = changed { return },
            labels = losses.recv() => match labels {
                Ok(labels) => lost.push(labels),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
        }
    }
}
