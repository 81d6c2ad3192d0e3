//! The root resource: where the others are.

use crate::macros::{resource, wire};

wire! {
    /// Where the resources of an agent are.
    pub struct Root {
        /// The path of this resource.
        pub uri: String,
        /// The version of the agent.
        pub agent_version: Option<String>,
        /// The path of the list of tunnels.
        pub tunnels_uri: Option<String>,
        /// The path of the list of captured requests.
        pub requests_uri: Option<String>,
        /// The path of the status.
        pub status_uri: Option<String>,
    }
}

resource! {
    /// The root resource.
    "root" {
        /// Fetch the root resource of the running agent.
        GET "/" Get() -> Root;
    }
}
