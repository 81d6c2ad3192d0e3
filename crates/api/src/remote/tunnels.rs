//! Tunnels: what the agents of the account offer now.

use std::collections::BTreeMap;

use crate::Timestamp;
use crate::macros::{resource, wire};
use crate::remote::Ref;

wire! {
    /// A tunnel that an agent offers now.
    pub struct Tunnel {
        /// Unique identifier, `tn_` and 27 characters.
        pub id: String,
        /// The public address; none for a labeled tunnel.
        pub public_url: Option<String>,
        /// When the tunnel was started.
        pub started_at: Option<Timestamp>,
        /// Free text that the agent gave.
        pub metadata: Option<String>,
        /// `http`, `https`, `tcp` or `tls`; none for a labeled tunnel.
        pub proto: Option<String>,
        /// The region of the service that the agent is connected to.
        pub region: Option<String>,
        /// The session that offers the tunnel.
        pub tunnel_session: Option<Ref>,
        /// The endpoint of the tunnel; none for a labeled tunnel.
        pub endpoint: Option<Ref>,
        /// The labels of a labeled tunnel.
        pub labels: Option<BTreeMap<String, String>>,
        /// The tunnel group backends that a labeled tunnel serves.
        pub backends: Option<Vec<Ref>>,
        /// The local address that the agent forwards to.
        pub forwards_to: Option<String>,
    }
}

resource! {
    /// Tunnels: what the agents of the account offer now.
    "tunnels" {
        /// List the tunnels that are online, newest first.
        GET "/tunnels" List([before_id: String, limit: i64]) -> [tunnels: Tunnel];
        /// Fetch one tunnel.
        GET "/tunnels/{id}" Get(id: String) -> Tunnel;
    }
}
