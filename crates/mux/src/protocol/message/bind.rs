//! Calls that register endpoints and take them back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::message::error_text::parse_failure;
use crate::protocol::message::{BindOpts, Hidden, RemoteError};

/// Registers one endpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Bind {
    /// Empty, or when reconnecting the id to keep.
    pub id: String,
    /// `http`, `https`, `tcp` or `tls`.
    pub proto: String,
    /// Where the agent forwards to; for display.
    pub forwards_to: String,
    /// Empty, `http1` or `http2`: what to speak on the streams of an HTTP endpoint.
    pub forwards_proto: String,
    /// The wishes for the endpoint, by protocol.
    pub opts: BindOpts,
    /// Names, token and further wishes.
    pub extra: BindExtra,
}

/// Names, token and further wishes of a [`Bind`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindExtra {
    /// The endpoint's name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Empty, or when reconnecting the one of the answer.
    pub token: Hidden,
    /// An IP policy to apply.
    #[serde(rename = "IPPolicyRef")]
    pub ip_policy_ref: String,
    /// Free text of the user.
    pub metadata: String,
    /// Where it is visible: `public`, `internal`, `kubernetes`; empty for the default.
    pub bindings: Vec<String>,
    /// Whether several agents may share the address.
    pub pooling_enabled: bool,
}

/// The service's answer to [`Bind`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindAnswer {
    /// What proxied connections and [`Unbind`] name it by.
    pub id: String,
    /// The public URL.
    #[serde(rename = "URL")]
    pub url: String,
    /// The bound protocol.
    pub proto: String,
    /// The options in force.
    pub opts: BindOpts,
    /// Token, and the endpoint's id in the management API.
    pub extra: BindAnswerExtra,
    /// Why it was not bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl BindAnswer {
    /// Why it was not bound, taken apart.
    pub fn failure(&self) -> Option<RemoteError> {
        parse_failure(self.error.as_deref())
    }
}

/// Token of a bind, and the endpoint's id in the management API.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindAnswerExtra {
    /// Proves ownership of the id when the agent reconnects.
    pub token: Hidden,
    /// The endpoint's id in the management API.
    #[serde(rename = "TunnelID", skip_serializing_if = "Option::is_none")]
    pub tunnel_id: Option<String>,
    /// True if the address was that of another session, which is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub took_over: bool,
}

/// Registers a tunnel that the service routes to by its labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindLabeled {
    /// What backends select it by.
    pub labels: BTreeMap<String, String>,
    /// Where the agent forwards to; for display.
    pub forwards_to: String,
    /// Empty, `http1` or `http2`.
    pub forwards_proto: String,
    /// Free text of the user.
    pub metadata: String,
}

/// The service's answer to [`BindLabeled`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindLabeledAnswer {
    /// What proxied connections and [`Unbind`] name it by.
    pub id: String,
    /// Why it was not bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl BindLabeledAnswer {
    /// Why it was not bound, taken apart.
    pub fn failure(&self) -> Option<RemoteError> {
        parse_failure(self.error.as_deref())
    }
}

/// Takes an endpoint or labelled tunnel back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Unbind {
    /// The id that the answer to the bind gave.
    pub id: String,
    /// Ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// Changes what an endpoint says about itself; absent members stay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PatchTunnelState {
    /// The endpoint's id in the management API.
    pub tunnel_id: String,
    /// Its new name.
    pub name: Option<String>,
    /// What it is now for.
    pub description: Option<String>,
    /// New free text of the user.
    pub metadata: Option<String>,
    /// Whether several agents may now share the address.
    pub pooling_enabled: Option<bool>,
    /// The new policy, JSON or YAML.
    pub traffic_policy: Option<String>,
}
