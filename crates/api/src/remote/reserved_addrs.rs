//! Reserved addresses: TCP ports that belong to their owner.

use crate::macros::{resource, wire};
use crate::{Description, Metadata};

wire! {
    /// A TCP port that only its owner's edges and agents may use.
    pub struct ReservedAddr {
        item { prefix: "ra", noun: "resource in the API", created: "When the address was reserved.", description: "Human-readable description of the address" }
        /// The address for visitors, `host:port`; edges take it as a hostport, agents as `remote_addr`.
        #[public(text)]
        pub addr: Option<String>,
        /// Stored and returned unchanged; a service of one's own has no regions.
        #[public(text)]
        pub region: Option<String>,
        /// The user or bot user whose edges and agents may use the port.
        #[public(text)]
        pub owner_id: Option<String>,
    }
}

resource! {
    /// Reserved addresses: TCP ports that belong to their owner.
    "reserved_addrs" {
        /// Reserve a TCP port; others' edges and agents can no longer use it.
        POST "/reserved_addrs" Create([
            description: Description,
            metadata: Metadata,
            region: String,
            /// The port, 1 to 65535; one that is free if left out.
            port: i64,
            /// Who may use the port; the owner of the key if left out. Another needs an admin key.
            owner_id: String,
        ]) -> ReservedAddr;
        /// List the reserved addresses, newest first.
        GET "/reserved_addrs" List([before_id: String, limit: i64]) -> [reserved_addrs: ReservedAddr];
        /// Fetch one reserved address.
        GET "/reserved_addrs/{id}" Get(id: String) -> ReservedAddr;
        /// Change a reserved address; needs a key of its owner or an admin.
        PATCH "/reserved_addrs/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
        ]) -> ReservedAddr;
        /// Release an address that no edge uses. Needs a key of its owner or an admin.
        DELETE "/reserved_addrs/{id}" Delete(id: String);
    }
}
