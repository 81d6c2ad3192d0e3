//! Tunnel group backends: select tunnels by their labels.

use std::collections::BTreeMap;

use crate::macros::{resource, wire};
use crate::remote::Ref;
use crate::{Description, Metadata};

/// How many labels there may be (remote API sheet, section 5).
pub const MOST_LABELS: usize = 32;
/// The longest key or value of a label, in bytes.
pub const MAX_LABEL_BYTES: usize = 255;

wire! {
    /// A backend that selects tunnels by their labels.
    pub struct TunnelGroupBackend {
        item { prefix: "bkdtg", noun: "backend", created: "When the backend was created.", description: "Human-readable description of the backend" }
        /// The labels that a tunnel must carry to be selected; none select nothing.
        #[public(text)]
        pub labels: Option<BTreeMap<String, String>>,
        /// The tunnels that carry these labels now, oldest first.
        pub tunnels: Option<Vec<Ref>>,
    }
}

resource! {
    /// Tunnel group backends: select tunnels by their labels.
    "backends.tunnel_group" {
        /// Create a tunnel group backend.
        POST "/backends/tunnel_group" Create([
            description: Description,
            metadata: Metadata,
            labels: BTreeMap<String, String>,
        ]) -> TunnelGroupBackend;
        /// List the tunnel group backends, newest first.
        GET "/backends/tunnel_group" List([before_id: String, limit: i64]) -> [backends: TunnelGroupBackend];
        /// Fetch one tunnel group backend.
        GET "/backends/tunnel_group/{id}" Get(id: String) -> TunnelGroupBackend;
        /// Change a tunnel group backend; what is left out keeps its value.
        PATCH "/backends/tunnel_group/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            labels: BTreeMap<String, String>,
        ]) -> TunnelGroupBackend;
        /// Delete a tunnel group backend; refused while something refers to it.
        DELETE "/backends/tunnel_group/{id}" Delete(id: String);
    }
}
