//! Whether this node is still whom the others take it for, while the database does not say so.
//!
//! A node that cannot reach the database goes on serving. Others may have taken it for gone meanwhile, and
//! its endpoints may be those of other binds: its peers know, and are asked.

use std::collections::HashMap;
use std::io;
use std::sync::Weak;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use ginnel_mux::Stream;
use ginnel_mux::protocol::rpc::{self, IncomingCall, RpcError, RpcRequest};

use super::link::Linker;
use super::message::kind;
use super::sessions::PeerSession;
use crate::cluster::{Cluster, EndpointKey, RemoteTunnel, RowOwner};

/// How often others are asked, while the database does not say anything.
const INTERVAL: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many binds one message names at most.
const MAX_BINDS: usize = 1000;

/// A node asks whether its epoch is over, and which of its binds have lost their endpoints.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EpochQuestion {
    #[serde(flatten)]
    pub owner: RowOwner,
    /// The newest version of the database that the node knows: who knows less cannot say.
    pub version: i64,
    /// What it holds, by the identifiers of binds.
    pub binds: Vec<(String, EndpointKey)>,
    /// Those of them that share their endpoints, and their pools.
    pub pools: HashMap<String, String>,
}

/// What the other node knows of that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EpochResponse {
    /// True when the epoch is over.
    pub is_over: bool,
    /// Binds whose endpoints other binds have now.
    pub lost: Vec<String>,
}

impl RpcRequest for EpochQuestion {
    const KIND: u32 = kind::EPOCH;
    type Answer = EpochResponse;
}

impl Linker {
    /// Tells another node what is known of its epoch.
    pub(super) async fn send_epoch(&self, stream: Stream) -> io::Result<()> {
        let call =
            IncomingCall::read_message(kind::EPOCH, stream).await.map_err(io::Error::other)?;
        let question: EpochQuestion = call.decode_message().map_err(io::Error::other)?;
        call.send_response(&self.epoch_of(question)).await.map_err(io::Error::other)
    }

    fn epoch_of(&self, question: EpochQuestion) -> EpochResponse {
        let EpochQuestion { owner, version, binds, pools } = question;
        if !self.directory.has_ended(&owner, version) {
            return EpochResponse::default();
        }
        let own =
            self.services.cluster.as_ref().map(|cluster| cluster.held_binds()).unwrap_or_default();
        let own: HashMap<EndpointKey, (String, Option<String>)> =
            own.into_iter().map(|(id, claim)| (claim.key, (id, claim.pool))).collect();
        let is_lost = |bind_id: &String, key: &EndpointKey| {
            let pool = pools.get(bind_id);
            let is_shared =
                |it: &RemoteTunnel| pool.is_some() && it.pool() == pool.map(String::as_str);
            let others = self.directory.claimed_at(key);
            others.iter().any(|tunnel| *tunnel.bind_id != **bind_id && !is_shared(tunnel))
                || own.get(key).is_some_and(|(own, its_pool)| {
                    own != bind_id && (pool.is_none() || its_pool.as_ref() != pool)
                })
        };
        let lost = binds.into_iter().filter(|(bind_id, key)| is_lost(bind_id, key));
        EpochResponse { is_over: true, lost: lost.map(|(bind_id, _)| bind_id).collect() }
    }
}

/// Asks the other nodes while the database does not say anything, and ends what this one has lost.
pub(super) async fn watch_epochs(linker: Weak<Linker>) {
    loop {
        sleep(INTERVAL).await;
        let Some(strong) = linker.upgrade() else { return };
        let cluster = strong.services.cluster.as_ref();
        let Some(cluster) = cluster.filter(|it| it.stale_news_age().is_some()) else { continue };
        for session in strong.sessions.all() {
            match lost_binds(&session, cluster).await {
                Ok(lost) => lost.iter().for_each(|bind_id| cluster.end_lost_bind(bind_id)),
                Err(err) => {
                    tracing::debug!(node = %session.node_id, %err, "a node says nothing of epochs");
                }
            }
        }
    }
}

/// The binds of this node that have lost their endpoints, as another node knows it.
async fn lost_binds(session: &PeerSession, cluster: &Cluster) -> Result<Vec<String>, RpcError> {
    let question = EpochQuestion {
        owner: cluster.owner(),
        version: cluster.seen_version(),
        ..EpochQuestion::default()
    };
    let mut lost = Vec::new();
    // Where all have lost the database, nobody is asked for more than this.
    if !query_epoch(session, &question).await?.is_over {
        return Ok(lost);
    }
    for binds in cluster.held_binds().chunks(MAX_BINDS) {
        let named = binds.iter().map(|(id, claim)| (id.clone(), claim.key.clone())).collect();
        let pooled = binds.iter().filter_map(|(id, claim)| Some((id.clone(), claim.pool.clone()?)));
        let question = EpochQuestion { binds: named, pools: pooled.collect(), ..question.clone() };
        lost.extend(query_epoch(session, &question).await?.lost);
    }
    Ok(lost)
}

pub(super) async fn query_epoch(
    session: &PeerSession,
    question: &EpochQuestion,
) -> Result<EpochResponse, RpcError> {
    rpc::call(&session.mux, question, RESPONSE_TIMEOUT).await
}
