//! Failover backends: ordered lists of other backends.

use crate::macros::{resource, wire};
use crate::{Description, Metadata};

wire! {
    /// An ordered list of backends; the first that can be reached takes the traffic.
    pub struct FailoverBackend {
        item { prefix: "bkdfo", noun: "backend", created: "When the backend was created.", description: "Human-readable description of the backend" }
        /// The identifiers of the child backends, in order.
        #[public(text)]
        pub backends: Option<Vec<String>>,
    }
}

resource! {
    /// Failover backends: ordered lists of other backends.
    "backends.failover" {
        /// Create a failover backend.
        POST "/backends/failover" Create([
            description: Description,
            metadata: Metadata,
            backends: Vec<String>,
        ]) -> FailoverBackend;
        /// List the failover backends, newest first.
        GET "/backends/failover" List([before_id: String, limit: i64]) -> [backends: FailoverBackend];
        /// Fetch one failover backend.
        GET "/backends/failover/{id}" Get(id: String) -> FailoverBackend;
        /// Change a failover backend; what is left out keeps its value.
        PATCH "/backends/failover/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            backends: Vec<String>,
        ]) -> FailoverBackend;
        /// Delete a failover backend; refused while something refers to it.
        DELETE "/backends/failover/{id}" Delete(id: String);
    }
}
