//! Answers to the operations of the local API.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::rejection::WebRejection;
use crate::agent::StartError;
use crate::agent::definition::Definition;
use crate::agent::inner::AgentInner;
use crate::agent::replay::ReplayError;
use crate::agent::session::{SessionState, TunnelBindError};
use crate::api;
use crate::api::local::root::Root;
use crate::api::local::status::{Leg, Session, Status};
use crate::api::local::tunnels::AgentTunnel;

/// How many captured requests are listed when nothing else is asked.
const DEFAULT_LIMIT: usize = 50;

pub(super) fn root() -> Root {
    Root {
        uri: "/api/".to_owned(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        tunnels_uri: Some("/api/tunnels".to_owned()),
        requests_uri: Some("/api/requests/http".to_owned()),
        status_uri: Some("/api/status".to_owned()),
    }
}

pub(super) fn status(shared: &AgentInner) -> Status {
    let state = shared.state.borrow().clone();
    let legs = match &state {
        SessionState::Online(online) => {
            let latency = online
                .latency()
                .map(|latency| format!("{}ms", (latency.as_secs_f64() * 1000.0).ceil()));
            vec![Leg { region: Some(online.region.clone()), latency }]
        }
        _ => Vec::new(),
    };
    Status {
        status: state.name().to_owned(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        session: Some(Session { legs }),
        uri: "/api/status".to_owned(),
    }
}

pub(super) fn tunnels(shared: &AgentInner) -> Value {
    let tunnels = shared.tunnels.all();
    let tunnels = tunnels.iter().map(|tunnel| tunnel.show()).collect::<Vec<_>>();
    json!({"tunnels": tunnels, "uri": "/api/tunnels"})
}

pub(super) async fn start(
    shared: &Arc<AgentInner>,
    body: &[u8],
) -> Result<AgentTunnel, WebRejection> {
    let document = object(body)?;
    let definition = Definition::read(&document);
    let started = match definition {
        Ok(definition) => {
            let shared = shared.clone();
            to_the_end(async move { shared.start_tunnel(definition).await }).await?
        }
        Err(problems) => Err(StartError::Definition(problems)),
    };
    started.map_err(|error| match error {
        StartError::Definition(problems) => {
            WebRejection::new(400, 102, "invalid tunnel configuration", problems.join("\n"))
        }
        StartError::Bind(error @ (TunnelBindError::Offline | TunnelBindError::Lost(_))) => {
            WebRejection::new(
                503,
                104,
                "the agent is not yet ready to start tunnels",
                error.to_string(),
            )
        }
        StartError::Bind(TunnelBindError::Refused(failure)) => {
            let code = failure.code.map(|code| format!("\n{code}")).unwrap_or_default();
            let problem = format!("{}{code}", failure.message);
            WebRejection::new(502, 103, "failed to start tunnel", problem)
        }
    })
}

/// Stops a tunnel; false when there is none of that name.
pub(super) async fn stop(shared: &Arc<AgentInner>, name: String) -> Result<bool, WebRejection> {
    let shared = shared.clone();
    to_the_end(async move { shared.stop_tunnel(&name).await }).await
}

/// Does something as a whole, although the client may leave before the end.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, WebRejection> {
    tokio::spawn(work).await.map_err(|error| WebRejection::failed(error.to_string()))
}

pub(super) fn requests(shared: &AgentInner, query: &str) -> Result<Value, WebRejection> {
    let mut limit = DEFAULT_LIMIT;
    let mut tunnel_name = None;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "limit" => {
                let read = value.parse().ok().filter(|limit| *limit > 0);
                let problem = || format!("limit: {value:?} is not a positive number");
                limit = read.ok_or_else(|| WebRejection::invalid_parameter(problem()))?;
            }
            "tunnel_name" => tunnel_name = Some(value.into_owned()),
            _ => {}
        }
    }
    let records = shared.captures.list(limit, tunnel_name.as_deref());
    let requests = records.iter().map(|record| record.show()).collect::<Vec<_>>();
    Ok(json!({"uri": "/api/requests/http", "requests": requests}))
}

pub(super) async fn replay(shared: &Arc<AgentInner>, body: &[u8]) -> Result<(), WebRejection> {
    let document = object(body)?;
    let text = |name: &str| match document.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(WebRejection::invalid_body(format!("{name}: must be a string"))),
    };
    let id = text("id")?.ok_or_else(|| WebRejection::invalid_body("id: is required"))?;
    let replayed = shared.replay(id, text("tunnel_name")?).await;
    replayed.map_err(|error| match error {
        ReplayError::Truncated => {
            WebRejection::new(400, 105, "request cannot be replayed", error.to_string())
        }
        _ => WebRejection::gone(error.to_string()),
    })
}

fn object(body: &[u8]) -> Result<Map<String, Value>, WebRejection> {
    api::json::object(body).map_err(|error| WebRejection::invalid_body(error.to_string()))
}
