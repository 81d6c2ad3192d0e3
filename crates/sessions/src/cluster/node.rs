//! A node, as the database has it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ginnel_api::Timestamp;
use ginnel_api::id::prefix;
use ginnel_store::Document;

/// How long a node may be seen without a beat before it is lapsed.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// The version of what nodes say to each other.
pub(super) const PROTOCOL_VERSION: u32 = 2;

/// The row of a node, which begins with its start and outlives it until its addresses are given up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDocument {
    /// Unique identifier, `node_` and 27 characters; new at each start.
    pub id: String,
    /// What names its process on its machine; empty where nothing does.
    #[serde(default)]
    pub process: String,
    #[serde(flatten)]
    pub state: NodeState,
    #[serde(flatten)]
    pub record: NodeRecord,
}

/// What nodes know of each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRecord {
    /// The name that its operator gave it; one node at a time has it.
    pub name: String,
    /// Counted up for all nodes together; rows of another epoch are void.
    pub epoch: u64,
    /// Where other nodes reach it, `host:port`; empty where they cannot.
    pub peer_address: String,
    /// The version of what nodes say to each other.
    pub protocol_version: u32,
    /// The version of the program.
    pub version: String,
    /// By its own clock.
    pub started_at: Timestamp,
}

/// What changes while a node runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// Counted up by the node to show that it lives.
    pub beat: u64,
    /// The newest version of the database whose changes it knew at its last beat.
    pub seen_version: i64,
    /// How many agents were connected to it then, and how many tunnels these had.
    pub sessions: u64,
    pub tunnels: u64,
    /// True once another node has taken its epoch from it.
    pub fenced: bool,
    /// True once it is about to stop: visitors are led to it where nobody else can serve them.
    pub draining: bool,
    /// True once it has stopped in order.
    pub stopped: bool,
}

impl Document for NodeDocument {
    const PREFIX: &'static str = prefix::NODE;

    fn id(&self) -> &str {
        &self.id
    }
}

impl NodeState {
    /// Whether nobody has said that the node has ended.
    pub fn is_serving(self) -> bool {
        !self.fenced && !self.stopped
    }
}
