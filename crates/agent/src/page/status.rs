//! What the status page shows.

use std::time::Duration;

use chrono::SecondsFormat;
use serde::Serialize;
use serde_json::{Map, Value, json};

use ginnel_api::local::tunnels::AgentTunnel;
use ginnel_api::{mask, yaml};

use super::live::{CaptureUsage, describe_state};
use crate::capture::{CaptureLimit, InspectFile};
use crate::inner::AgentInner;
use crate::options::WebAddress;
use crate::session_state::{OnlineSession, SessionFailure};
use crate::{RunningTunnel, Trust};

/// How the agent is.
#[derive(Debug, Serialize)]
pub(super) struct StatusPage {
    pub version: &'static str,
    /// Seconds.
    pub uptime: u64,
    /// How the link to the service is.
    pub state: &'static str,
    pub region: Option<String>,
    /// Milliseconds of the last heartbeat.
    pub latency: Option<f64>,
    /// The nodes of the service that the agent has sessions with; none where it has no nodes.
    pub nodes: Vec<NodeView>,
    pub reconnects: u64,
    /// When the service is tried again, RFC 3339; none while there is a session.
    pub next_attempt: Option<String>,
    pub usage: CaptureUsage,
    /// The file that requests survive a restart in; none where there is no such file.
    pub file: Option<FileView>,
    pub tunnels: Vec<TunnelView>,
    /// The options in effect, by the names of the configuration file.
    pub options: Map<String, Value>,
    /// Recent errors, newest first.
    pub failures: Vec<FailureView>,
}

/// A node of the service.
#[derive(Debug, Serialize)]
pub(super) struct NodeView {
    pub name: String,
    /// Milliseconds of the last heartbeat.
    pub latency: Option<f64>,
}

/// The file that captured requests survive a restart in.
#[derive(Debug, Serialize)]
pub(super) struct FileView {
    pub path: String,
    pub bytes: usize,
    pub limit: usize,
    /// How many requests were left out.
    pub dropped: u64,
    /// Why the last change failed; none where it did not.
    pub problem: Option<String>,
}

/// A tunnel that runs.
#[derive(Debug, Serialize)]
pub(super) struct TunnelView {
    #[serde(flatten)]
    pub shown: AgentTunnel,
    /// Its definition; secrets are masked.
    pub definition: Value,
}

/// Something that went wrong.
#[derive(Debug, Serialize)]
pub(super) struct FailureView {
    pub at: String,
    pub reason: String,
}

impl StatusPage {
    pub fn from_agent(shared: &AgentInner) -> Self {
        let state = shared.state.borrow().clone();
        let online = state.sessions().next();
        let latency = online.and_then(OnlineSession::latency);
        let failures = shared.with_history(|history| history.failures.clone());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime: shared.started.elapsed().as_secs(),
            state: describe_state(shared),
            region: online.map(|online| online.region.clone()),
            latency: latency.map(to_millis),
            nodes: state.sessions().filter_map(NodeView::from_session).collect(),
            reconnects: shared.with_history(|history| history.reconnects),
            next_attempt: next_attempt(shared).filter(|_| online.is_none()),
            usage: shared.captures.usage().into(),
            file: shared.captures.file().map(FileView::from_file),
            tunnels: shared
                .tunnels
                .all()
                .iter()
                .map(|tunnel| TunnelView::from_tunnel(tunnel))
                .collect(),
            options: options_json(shared),
            failures: failures.iter().rev().map(FailureView::from_failure).collect(),
        }
    }
}

fn next_attempt(shared: &AgentInner) -> Option<String> {
    let next = shared.with_history(|history| history.next_attempt)?;
    Some(next.to_rfc3339_opts(SecondsFormat::Millis, false))
}

impl FileView {
    fn from_file(file: &InspectFile) -> Self {
        let usage = file.usage();
        Self {
            path: mask::path(file.path()).to_string(),
            bytes: usage.bytes,
            limit: usage.limit,
            dropped: usage.dropped,
            problem: usage.problem,
        }
    }
}

impl NodeView {
    fn from_session(online: &OnlineSession) -> Option<Self> {
        let name = online.node.as_deref()?.to_owned();
        Some(Self { name, latency: online.latency().map(to_millis) })
    }
}

fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl FailureView {
    fn from_failure(failed: &SessionFailure) -> Self {
        let at = failed.at.to_rfc3339_opts(SecondsFormat::Millis, false);
        Self { at, reason: failed.reason.clone() }
    }
}

impl TunnelView {
    fn from_tunnel(tunnel: &RunningTunnel) -> Self {
        let mut definition = Value::Object(tunnel.definition.document.clone());
        mask_definition(&mut definition);
        Self { shown: tunnel.to_agent_tunnel(), definition }
    }
}

fn options_json(shared: &AgentInner) -> Map<String, Value> {
    let options = &shared.options;
    let time = |duration: Duration| format!("{}ms", duration.as_millis());
    let shown = json!({
        "server_addr": match options.server_addrs.as_slice() {
            [one] => json!(one.to_string()),
            several => several.iter().map(ToString::to_string).collect(),
        },
        "root_cas": match &options.trust {
            Trust::System => "trusted",
            Trust::Pem(_) => "a file",
            Trust::Anything => "any certificate is accepted",
        },
        "authtoken": mask::MASK,
        "metadata": options.metadata,
        "web_addr": match &options.web_addr {
            WebAddress::Default => json!("127.0.0.1:4040"),
            WebAddress::At(address) => json!(address.to_string()),
            WebAddress::Off => json!(false),
        },
        "web_allow_hosts": options.web_allow_hosts,
        "unix_socket_roots": options.unix_socket_roots,
        "inspect_db_size": match options.inspect {
            CaptureLimit::Nothing => -1,
            CaptureLimit::Bytes(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
        },
        "inspect_body_limit": options.capture_limits().body,
        "connect_timeout": time(options.connect_timeout),
        "heartbeat_interval": time(options.heartbeat_interval),
        "heartbeat_tolerance": time(options.heartbeat_tolerance),
        "remote_management": options.remote_management,
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

/// Fields of definitions that hold policies.
const POLICY_FIELDS: [&str; 2] = ["traffic_policy", "policy"];

/// Masks the secrets of a definition, and removes fields that are not set.
fn mask_definition(definition: &mut Value) {
    expand_definition(definition);
    mask::definition(definition);
}

/// Removes fields that are not set, and reads policies that are given as text: their structure shows their secrets.
fn expand_definition(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            for (name, member) in members {
                if POLICY_FIELDS.contains(&name.as_str()) {
                    expand_policy(member);
                }
                expand_definition(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(expand_definition),
        _ => {}
    }
}

fn expand_policy(policy: &mut Value) {
    let read = policy.as_str().and_then(|text| yaml::read_yaml::<Map<String, Value>>(text).ok());
    if let Some(read) = read {
        *policy = Value::Object(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_definitions_are_masked() {
        let mut definition = json!({
            "addr": "80",
            "basic_auth": ["user:password"],
            "verify_webhook": {"provider": "github", "secret": "abc"},
            "request_header": {"add": ["X-Api-Key: abc", "Authorization: Basic abc", "X-Plain: abc"]},
            "oidc": null,
            "traffic_policy": "on_http_request:\n- actions:\n  - config:\n      secret: abc\n  \
                - config:\n      client_secret: 4711\n      credentials:\n      - user:password\n",
            "policy": "{\"a\": {\"api_key\": \"abc\"",
        });

        mask_definition(&mut definition);

        let shown = definition.to_string();
        assert!(!shown.contains("password") && !shown.contains("4711"), "{shown}");
        assert!(!shown.contains("null"), "{shown}");
        assert_eq!(shown.matches("abc").count(), 1, "{shown}");
        assert!(shown.contains("X-Plain: abc"), "{shown}");
    }
}
