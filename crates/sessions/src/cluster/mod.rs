//! Several nodes on one database.
//!
//! Each service on PostgreSQL is a node (`node`): a row with a name, an address for other nodes and an
//! epoch. Sessions and tunnels of its agents are rows of that epoch (`rows`). Every node has the nodes and
//! tunnels of all others in memory (`directory`), fed by the changes of the database. `member` is the node
//! at work, `membership` what happens to its row, `announcements` what of its rows is to be written, and
//! `row_changes` how, `holds` whose an endpoint is, `upkeep` fences nodes that have lapsed, and `cleaning`
//! removes what is left of those that have ended. `lease` is for work that one node does at a time.
//!
//! Whether a node is alive is for each of the others to judge, by its own monotonic clock: a node counts a
//! beat up, and one whose beat has not been seen to change for 15 seconds is lapsed. No two clocks are
//! compared, so a clock that jumps changes nothing. A lapsed node is fenced: its epoch is counted up, which
//! makes its rows void at once, whoever removes them later.
//!
//! A service on SQLite is one node and has none of this.

mod announcements;
mod cleaning;
mod directory;
mod holds;
pub mod lease;
mod listing;
mod member;
mod membership;
mod node;
mod peers;
mod process;
mod row_changes;
mod rows;
mod settings;
mod start;
mod upkeep;

use ginnel_api::id::prefix;
use ginnel_store::LeftOut;

pub use directory::KnownNode;
pub use holds::{HoldResult, all_held, claimant_at, hold_endpoint, holding_nodes};
pub use lease::Leases;
pub use listing::{OwnedRow, find_row, row_page};
pub use member::Cluster;
pub use peers::{BoundPeerListener, CommandFailure, PeerServices, Peers, UnreachableNode};
pub use rows::{
    EndpointClaim, EndpointKey, EndpointRow, RemotePlace, RemoteTunnel, RowOwner, SessionDocument,
    TlsHandling, TunnelDocument,
};
pub use settings::ClusterSettings;

/// What nodes have in a database for as long as they run, which is nothing to a service on a copy of it.
pub const ROWS_OF_NODES: LeftOut<'static> = LeftOut {
    interrupted: None,
    settings: &[lease::EVENT_DELIVERY],
    kinds: &[prefix::NODE, prefix::TUNNEL_SESSION, prefix::TUNNEL],
    roles: &[membership::ROWS, holds::HELD, holds::POOL],
    spaces: &[membership::NAMES, holds::ENDPOINTS],
};

#[cfg(test)]
pub use node::NodeDocument;
