//! Commands of the service, and the plain answer.

use serde::{Deserialize, Serialize};

use crate::protocol::message::RemoteError;
use crate::protocol::message::error_text::parse_failure;

/// An answer that says no more than whether it worked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CommandResponse {
    /// Why it did not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CommandResponse {
    /// An answer that says why it did not work.
    pub fn with_error(text: impl Into<String>) -> Self {
        Self { error: Some(text.into()) }
    }

    /// Why it did not work, taken apart.
    pub fn failure(&self) -> Option<RemoteError> {
        parse_failure(self.error.as_deref())
    }
}

/// Asks the agent to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {}

/// Asks the agent to start anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restart {}

/// Asks the agent to replace itself by another version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Update {
    /// The wanted version; empty for the newest.
    pub version: String,
    /// Whether another major version is welcome.
    pub permit_major_version: bool,
}

/// Tells the agent that one of its tunnels is over; there is no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StopTunnel {
    /// The id of the bind.
    pub id: String,
    /// Why.
    pub message: String,
    /// The code of the error, if it was one.
    pub error_code: Option<String>,
}

/// Asks where the service is; allowed before [`Auth`](crate::protocol::message::Auth).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SrvInfo {}

/// The answer to [`SrvInfo`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SrvInfoAnswer {
    /// Where the service is.
    pub region: String,
}

/// What stands before the bytes of a proxied connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProxyHeader {
    /// The id of the bind.
    pub id: String,
    /// Address and port of the visitor.
    pub client_addr: String,
    /// `http`, `https`, `tcp` or `tls`.
    pub proto: String,
    /// `"0"` endpoint, `"1"` tcp, `"2"` tls, `"3"` https edge.
    pub edge_type: String,
    /// True when the bytes are TLS that the service did not open.
    #[serde(rename = "PassthroughTLS")]
    pub passthrough_tls: bool,
    /// The identifier of the edge that led here; empty for an endpoint. Ours alone: other agents
    /// read over it.
    #[serde(rename = "EdgeID", default, skip_serializing_if = "String::is_empty")]
    pub edge_id: String,
    /// The identifier of that edge's route; empty where there is none.
    #[serde(rename = "RouteID", default, skip_serializing_if = "String::is_empty")]
    pub route_id: String,
}
