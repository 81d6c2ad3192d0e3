//! The status of the agent and of its session.

use crate::macros::{resource, wire};

wire! {
    /// The state of an agent.
    pub struct Status {
        /// `online`, `connecting`, `reconnecting` or `offline`.
        pub status: String,
        /// The version of the agent.
        pub agent_version: Option<String>,
        /// The session with the service.
        pub session: Option<Session>,
        /// The path of this resource.
        pub uri: String,
    }

    /// The session of an agent with its service.
    pub struct Session {
        /// The connections to the service; none while the agent is not online, and two to two nodes of a
        /// service that has several.
        pub legs: Vec<Leg>,
    }

    /// A connection between agent and service.
    pub struct Leg {
        /// The region of the service.
        pub region: Option<String>,
        /// The time of a round trip, such as `87ms`.
        pub latency: Option<String>,
        /// The node of the service that it leads to, where the service has several.
        pub node: Option<String>,
    }
}

resource! {
    /// The status of the agent.
    "status" {
        /// Fetch the status of the agent and of its session.
        GET "/status" Get() -> Status;
    }
}
