//! Nodes: the services that share a database.

use crate::Timestamp;
use crate::macros::{resource, wire};

wire! {
    /// A service that shares its database with others.
    pub struct Node {
        /// Unique identifier, `node_` and 27 characters; new at each start.
        pub id: String,
        /// The name that its operator gave it.
        pub name: Option<String>,
        /// `alive`, `draining`, `unreachable` (no connection for 5 s) or `lapsed` (unseen for 15 s).
        pub state: Option<String>,
        /// True for the node that responds.
        pub own: Option<bool>,
        /// Counted up whenever a node begins, or is taken for gone.
        pub epoch: Option<i64>,
        /// Where other nodes reach it; empty where they cannot.
        pub peer_address: Option<String>,
        /// The version of its program.
        pub version: Option<String>,
        /// The version of what nodes say to each other.
        pub protocol_version: Option<i64>,
        /// When it began, by its own clock.
        pub started_at: Option<Timestamp>,
        /// How many milliseconds ago the node that responds saw it last.
        pub seen_ms: Option<i64>,
        /// How many changes of the database it was behind when it was seen last.
        pub version_lag: Option<i64>,
        /// How many agents were connected to it then.
        pub sessions: Option<i64>,
        /// How many tunnels these had.
        pub tunnels: Option<i64>,
        /// How many microseconds a heartbeat takes to it and back; none without a connection to it.
        pub latency_us: Option<i64>,
    }
}

resource! {
    /// Nodes: the services that share a database.
    "nodes" {
        /// List the nodes, newest first; none where the service is the only one on its database.
        GET "/nodes" List([before_id: String, limit: i64]) -> [nodes: Node];
    }
}
