//! Tunnel sessions: the agents that are connected now.

use crate::Timestamp;
use crate::macros::{resource, wire};
use crate::remote::Ref;

wire! {
    /// An agent that is connected now.
    pub struct TunnelSession {
        /// Unique identifier, `ts_` and 27 characters.
        pub id: String,
        /// The address of this session.
        pub uri: String,
        /// The version of the agent.
        pub agent_version: Option<String>,
        /// The credential that the session was started with.
        pub credential: Option<Ref>,
        /// The address that the agent connected from.
        pub ip: Option<String>,
        /// Free text that the agent gave.
        pub metadata: Option<String>,
        /// The operating system of the agent.
        pub os: Option<String>,
        /// The region of the service that the agent is connected to.
        pub region: Option<String>,
        /// When the session was started.
        pub started_at: Option<Timestamp>,
        /// The protocol of the session.
        pub transport: Option<String>,
    }
}

resource! {
    /// Tunnel sessions: the agents that are connected now.
    "tunnel_sessions" {
        /// List the sessions that are online, newest first.
        GET "/tunnel_sessions" List([before_id: String, limit: i64]) -> [tunnel_sessions: TunnelSession];
        /// Fetch one session.
        GET "/tunnel_sessions/{id}" Get(id: String) -> TunnelSession;
        /// Ask the agent to stop; it does not reconnect.
        POST "/tunnel_sessions/{id}/stop" Stop(id: String);
        /// Ask the agent to restart.
        POST "/tunnel_sessions/{id}/restart" Restart(id: String);
        /// Ask the agent to update itself.
        POST "/tunnel_sessions/{id}/update" Update(id: String);
    }
}
