//! The first call of a session.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::message::error_text::parse_failure;
use crate::protocol::message::{Hidden, RemoteError};

/// The code by which a node refuses the second session of an agent that is connected to it.
pub const SAME_NODE_CODE: u16 = 9740;

/// Who the agent is; the first call of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Auth {
    /// Protocol versions, best first.
    pub version: Vec<String>,
    /// Empty for a new session; when reconnecting, the id that the first answer gave.
    pub client_id: String,
    /// Token, settings and descriptions.
    pub extra: AuthExtra,
}

/// Token, settings and descriptions of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthExtra {
    /// The operating system, such as `linux`.
    #[serde(rename = "OS")]
    pub os: String,
    /// The processor, such as `x86_64` or `amd64`.
    pub arch: String,
    /// The account's token.
    pub auth_token: Hidden,
    /// The version of the outermost program.
    pub version: String,
    /// The name of the outermost program.
    pub client_type: String,
    /// Programs and versions, outermost first.
    pub user_agent: String,
    /// The machine's name; empty in the libraries.
    pub hostname: String,
    /// Free text of the user.
    pub metadata: String,
    /// Empty at first, then what the service gave.
    pub cookie: Hidden,
    /// Nanoseconds between two beats.
    pub heartbeat_interval: i64,
    /// Nanoseconds that a beat may be late.
    pub heartbeat_tolerance: i64,
    /// None: too old for the command; empty: supported; else why it is not.
    pub restart_unsupported_error: Option<String>,
    /// None: too old for the command; empty: supported; else why it is not.
    pub stop_unsupported_error: Option<String>,
    /// None: too old for the command; empty: supported; else why it is not.
    pub update_unsupported_error: Option<String>,
    /// The kind of proxy that the agent dials through.
    pub proxy_type: String,
    /// Whether the agent shows a certificate.
    #[serde(rename = "MutualTLS")]
    pub mutual_tls: bool,
    /// Whether the agent runs as a service of its machine.
    pub service_run: bool,
    /// The version of the agent's configuration file.
    pub config_version: String,
    /// Whether the agent's own page was changed.
    pub custom_interface: bool,
    /// Whether the agent trusts certificates of its own choice.
    #[serde(rename = "CustomCAs")]
    pub custom_cas: bool,
    /// Counts further connections of one agent.
    pub leg_number: u32,
    /// The node of a cluster that the agent's other session leads to, which refuses this one; empty
    /// where there is no other.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub other_node: String,
    /// Where the agent wants to read which rules of policies acted on a request; empty where it does
    /// not. Ours alone: other agents name none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rules_header: String,
}

/// The service's answer to [`Auth`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthAnswer {
    /// The protocol version that was chosen.
    pub version: String,
    /// The id of the session, to be named when reconnecting.
    pub client_id: String,
    /// Why the agent was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Descriptions.
    pub extra: AuthAnswerExtra,
}

impl AuthAnswer {
    /// Why the agent was refused, taken apart.
    pub fn failure(&self) -> Option<RemoteError> {
        parse_failure(self.error.as_deref())
    }
}

/// What a service tells an agent about itself and the account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AuthAnswerExtra {
    /// The version of the service.
    pub version: String,
    /// Where the service is.
    pub region: String,
    /// Comes back when the agent reconnects.
    pub cookie: Hidden,
    /// Whose account it is.
    pub account_name: String,
    /// Seconds that the session may last; 0 for ever.
    pub session_duration: i64,
    /// The account's plan.
    pub plan_name: String,
    /// Text to show to the user.
    pub banner: String,
    /// What an old agent should say about its age.
    pub deprecation_warning: Option<Value>,
    /// Further addresses of the service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_addresses: Vec<ConnectAddress>,
    /// The session's id in the management API.
    #[serde(rename = "AgentSessionID")]
    pub agent_session_id: String,
    /// Which node of a cluster the service is; empty where it is the only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// True where a session at the same node was refused and there is no other node now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_only_node: bool,
}

/// One further address of the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConnectAddress {
    /// Where it is.
    pub region: String,
    /// Its host and port.
    pub server_addr: String,
}
