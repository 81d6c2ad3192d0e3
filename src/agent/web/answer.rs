//! Answers to the operations of the local API.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use crate::agent::definition::Definition;
use crate::agent::link::{BindError, State};
use crate::agent::replay::ReplayError;
use crate::agent::{Shared, StartError};
use crate::api;
use crate::api::local::root::Root;
use crate::api::local::status::{Leg, Session, Status};
use crate::api::local::tunnels::AgentTunnel;

/// How many captured requests are listed when nothing else is asked.
const USUAL: usize = 50;

pub(super) fn root() -> Root {
    Root {
        uri: "/api/".to_owned(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        tunnels_uri: Some("/api/tunnels".to_owned()),
        requests_uri: Some("/api/requests/http".to_owned()),
        status_uri: Some("/api/status".to_owned()),
    }
}

pub(super) fn status(shared: &Shared) -> Status {
    let state = shared.state.borrow().clone();
    let legs = match &state {
        State::Online(online) => {
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

pub(super) fn tunnels(shared: &Shared) -> Value {
    let tunnels = shared.tunnels.all();
    let tunnels = tunnels.iter().map(|tunnel| tunnel.show()).collect::<Vec<_>>();
    json!({"tunnels": tunnels, "uri": "/api/tunnels"})
}

pub(super) async fn start(shared: &Arc<Shared>, body: &[u8]) -> Result<AgentTunnel, Refusal> {
    let given = object(body)?;
    let definition = Definition::read(&given);
    let started = match definition {
        Ok(definition) => {
            let shared = shared.clone();
            to_the_end(async move { shared.start_tunnel(definition).await }).await?
        }
        Err(problems) => Err(StartError::Definition(problems)),
    };
    started.map_err(|error| match error {
        StartError::Definition(problems) => {
            Refusal::new(400, 102, "invalid tunnel configuration", problems.join("\n"))
        }
        StartError::Bind(error @ (BindError::Offline | BindError::Lost(_))) => {
            Refusal::new(503, 104, "the agent is not yet ready to start tunnels", error.to_string())
        }
        StartError::Bind(BindError::Refused(failure)) => {
            let code = failure.code.map(|code| format!("\n{code}")).unwrap_or_default();
            let problem = format!("{}{code}", failure.message);
            Refusal::new(502, 103, "failed to start tunnel", problem)
        }
    })
}

/// Stops a tunnel; false when there is none of that name.
pub(super) async fn stop(shared: &Arc<Shared>, name: String) -> Result<bool, Refusal> {
    let shared = shared.clone();
    to_the_end(async move { shared.stop_tunnel(&name).await }).await
}

/// Does something as a whole, although the client may leave before the end.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::spawn(work).await.map_err(|error| Refusal::failed(error.to_string()))
}

pub(super) fn requests(shared: &Shared, query: &str) -> Result<Value, Refusal> {
    let mut limit = USUAL;
    let mut tunnel_name = None;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "limit" => {
                let read = value.parse().ok().filter(|limit| *limit > 0);
                let problem = || format!("limit: {value:?} is not a positive number");
                limit = read.ok_or_else(|| Refusal::invalid_parameter(problem()))?;
            }
            "tunnel_name" => tunnel_name = Some(value.into_owned()),
            _ => {}
        }
    }
    let records = shared.captures.list(limit, tunnel_name.as_deref());
    let requests = records.iter().map(|record| record.show()).collect::<Vec<_>>();
    Ok(json!({"uri": "/api/requests/http", "requests": requests}))
}

pub(super) async fn replay(shared: &Arc<Shared>, body: &[u8]) -> Result<(), Refusal> {
    let given = object(body)?;
    let text = |name: &str| match given.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Refusal::invalid_body(format!("{name}: is text"))),
    };
    let id = text("id")?.ok_or_else(|| Refusal::invalid_body("id: is required"))?;
    let replayed = shared.replay(id, text("tunnel_name")?).await;
    replayed.map_err(|error| match error {
        ReplayError::Truncated => {
            Refusal::new(400, 105, "request cannot be replayed", error.to_string())
        }
        _ => Refusal::gone(error.to_string()),
    })
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    api::json::object(body).map_err(|error| Refusal::invalid_body(error.to_string()))
}
