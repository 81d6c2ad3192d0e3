//! Weighted backends: other backends, picked at random by weight.

use std::collections::BTreeMap;

use crate::macros::{resource, wire};
use crate::{Description, Metadata};

wire! {
    /// Backends that are picked at random in proportion to their weights.
    pub struct WeightedBackend {
        item { prefix: "bkdwd", noun: "backend", created: "When the backend was created.", description: "Human-readable description of the backend" }
        /// The weight of each child backend by its identifier, 0 to 10000.
        pub backends: Option<BTreeMap<String, i64>>,
    }
}

resource! {
    /// Weighted backends: other backends, picked at random by weight.
    "backends.weighted" {
        /// Create a weighted backend.
        POST "/backends/weighted" Create([
            description: Description,
            metadata: Metadata,
            backends: BTreeMap<String, i64>,
        ]) -> WeightedBackend;
        /// List the weighted backends, newest first.
        GET "/backends/weighted" List([before_id: String, limit: i64]) -> [backends: WeightedBackend];
        /// Fetch one weighted backend.
        GET "/backends/weighted/{id}" Get(id: String) -> WeightedBackend;
        /// Change a weighted backend; what is left out keeps its value.
        PATCH "/backends/weighted/{id}" Update(id: String, [
            description: Description,
            metadata: Metadata,
            backends: BTreeMap<String, i64>,
        ]) -> WeightedBackend;
        /// Delete a weighted backend; refused while something refers to it.
        DELETE "/backends/weighted/{id}" Delete(id: String);
    }
}
