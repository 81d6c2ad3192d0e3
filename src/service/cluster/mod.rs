//! Several nodes on one database.
//!
//! Each service on PostgreSQL is a node (`node`): a row with a name, an address for other nodes and an
//! epoch. Sessions and tunnels of its agents are rows of that epoch (`rows`). Every node has the nodes and
//! tunnels of all others in memory (`directory`), fed by the changes of the database.
//!
//! Whether a node is alive is for each of the others to judge, by its own monotonic clock: a node counts a
//! beat up, and one whose beat has not been seen to change for [`LEASE`] is lapsed. No two clocks are
//! compared, so a clock that jumps changes nothing. A lapsed node is fenced: its epoch is counted up, which
//! makes its rows void at once, whoever removes them later.
//!
//! A service on SQLite is one node and has none of this.

mod directory;
mod node;
mod peers;
mod rows;

use std::time::Duration;

#[expect(unused_imports, reason = "nodes do not announce themselves yet")]
pub(crate) use {
    directory::{Directory, KnownNode},
    node::{NodeDocument, NodeRecord, NodeState},
    rows::{EndpointKey, RemotePlace, RemoteTunnel, SessionDocument, TlsHandling, TunnelDocument},
};

/// How long a node may be seen without a beat before it is lapsed.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// The version of what nodes say to each other.
pub(crate) const PROTOCOL_VERSION: u32 = 1;
