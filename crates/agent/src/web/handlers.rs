//! Answers to the operations of the local API.

use std::collections::BTreeMap;
use std::sync::Arc;

use ginnel_api::local::{endpoints, requests, root, status, tunnels};
use ginnel_api::{Note, Operation, Page, on};
use ginnel_http1::HeadWriter;

use super::handler::{Shared, WebHandler, WebResult};
use super::interception::{self, one_body};
use super::proto_files;
use super::rejection::WebRejection;
use super::replay_schedules;
use crate::archive;
use crate::capture::{CaptureSource, CapturedMessage};
use crate::definition::Definition;
use crate::edits::RequestEdits;
use crate::messages;
use crate::protobuf::BytesDisplay;
use crate::replay::{ReplayError, ReplayPlan};
use crate::session::{StartError, TunnelBindError};
use crate::tunnels::RunningTunnel;

const NOT_READY: &str = "the agent is not yet ready to start tunnels";
/// The text of an agent without a session. Wrappers try again if they find exactly this, and give up otherwise.
const WRAPPERS_WAIT_FOR: &str = "a successful ngrok tunnel session has not yet been established";

/// How many captured requests are listed when nothing else is asked.
const DEFAULT_REQUESTS: i64 = 50;

/// Every handler of the local API.
pub(super) fn all_handlers() -> Vec<WebHandler> {
    vec![
        on(get_root),
        on(get_status),
        on(list_tunnels),
        on(start_tunnel),
        on(get_tunnel),
        on(stop_tunnel),
        on(list_endpoints),
        on(start_endpoint),
        on(get_endpoint),
        on(replace_endpoint),
        on(stop_endpoint),
        on(list_requests),
        on(get_request),
        on(list_messages),
        on(replay_request),
        on(send_request),
        on(load_requests),
        on(update_request),
        on(delete_request),
        on(clear_requests),
    ]
    .into_iter()
    .chain(interception::all_handlers())
    .chain(proto_files::all_handlers())
    .chain(replay_schedules::all_handlers())
    .collect()
}

async fn get_root(_: Shared, _: root::Get) -> WebResult<root::Get> {
    Ok(root::Root {
        uri: "/api/".to_owned(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        tunnels_uri: Some("/api/tunnels".to_owned()),
        requests_uri: Some("/api/requests/http".to_owned()),
        status_uri: Some("/api/status".to_owned()),
    })
}

async fn get_status(agent: Shared, _: status::Get) -> WebResult<status::Get> {
    let state = agent.state.borrow().clone();
    let legs = state.sessions().map(|online| {
        let latency = online.latency();
        let latency = latency.map(|it| format!("{}ms", (it.as_secs_f64() * 1000.0).ceil()));
        let node = online.node.as_deref().map(str::to_owned);
        status::Leg { region: Some(online.region.clone()), latency, node }
    });
    let legs = legs.collect();
    Ok(status::Status {
        status: state.name().to_owned(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        session: Some(status::Session { legs }),
        uri: "/api/status".to_owned(),
    })
}

async fn list_tunnels(agent: Shared, _: tunnels::List) -> WebResult<tunnels::List> {
    let tunnels = agent.tunnels.all();
    let shown = tunnels.iter().map(|tunnel| agent.show_tunnel(tunnel)).collect();
    Ok(Page::whole(&tunnels::List::INFO, "/api", shown))
}

async fn start_tunnel(agent: Shared, start: tunnels::Start) -> WebResult<tunnels::Start> {
    let roots = agent.socket_roots.clone();
    let definition = read_definition(move || Definition::from_start(start, &roots)).await;
    let tunnel = start_defined(&agent, definition).await?;
    Ok(agent.show_tunnel(&tunnel))
}

/// Reads a definition on a thread that may block: it names files, folders and sockets, and a file system may not
/// respond.
async fn read_definition(
    read: impl FnOnce() -> Result<Definition, Vec<String>> + Send + 'static,
) -> Result<Definition, Vec<String>> {
    let unread = |_| Err(vec!["the definition cannot be read: the agent is stopping".to_owned()]);
    ginnel_base::tasks::spawn_blocking(read).await.unwrap_or_else(unread)
}

/// Starts what a definition asks for, where it is right.
async fn start_defined(
    agent: &Shared,
    definition: Result<Definition, Vec<String>>,
) -> Result<Arc<RunningTunnel>, WebRejection> {
    let agent = agent.clone();
    let serves_wrappers = agent.options.serves_wrappers;
    let started = match definition {
        Ok(definition) => {
            run_to_completion(async move { agent.start_tunnel(definition).await }).await?
        }
        Err(problems) => Err(StartError::Definition(problems)),
    };
    started.map_err(|error| start_rejection(error, serves_wrappers))
}

fn start_rejection(error: StartError, serves_wrappers: bool) -> WebRejection {
    match error {
        StartError::Bind(TunnelBindError::Offline | TunnelBindError::Lost(_))
            if serves_wrappers =>
        {
            WebRejection::new(503, 104, NOT_READY, WRAPPERS_WAIT_FOR)
        }
        StartError::Definition(problems) => WebRejection::invalid_tunnel(&problems),
        StartError::Bind(error @ (TunnelBindError::Offline | TunnelBindError::Lost(_))) => {
            WebRejection::new(503, 104, NOT_READY, error.to_string())
        }
        StartError::Bind(TunnelBindError::Refused(failure)) => {
            let code = failure.code.map(|code| format!("\n{code}")).unwrap_or_default();
            let problem = format!("{}{code}", failure.message);
            WebRejection::new(502, 103, "failed to start tunnel", problem)
        }
        StartError::Bind(error @ TunnelBindError::OtherAddress(_)) => {
            WebRejection::new(502, 103, "failed to start tunnel", error.to_string())
        }
    }
}

async fn get_tunnel(agent: Shared, get: tunnels::Get) -> WebResult<tunnels::Get> {
    let tunnel = agent.tunnels.find(&get.name).ok_or_else(WebRejection::not_found)?;
    Ok(agent.show_tunnel(&tunnel))
}

async fn stop_tunnel(agent: Shared, stop: tunnels::Stop) -> WebResult<tunnels::Stop> {
    stop_named(agent, stop.name).await
}

async fn stop_named(agent: Shared, name: String) -> Result<(), WebRejection> {
    match run_to_completion(async move { agent.stop_tunnel(&name).await }).await? {
        true => Ok(()),
        false => Err(WebRejection::not_found()),
    }
}

async fn list_endpoints(agent: Shared, _: endpoints::List) -> WebResult<endpoints::List> {
    let tunnels = agent.tunnels.all();
    let shown = tunnels.iter().map(|tunnel| tunnel.show_endpoint()).collect();
    Ok(Page::whole(&endpoints::List::INFO, "/api", shown))
}

async fn start_endpoint(agent: Shared, start: endpoints::Start) -> WebResult<endpoints::Start> {
    let roots = agent.socket_roots.clone();
    let definition = read_definition(move || Definition::from_endpoint(start, &roots)).await;
    let tunnel = start_defined(&agent, definition).await?;
    Ok(tunnel.show_endpoint())
}

async fn get_endpoint(agent: Shared, get: endpoints::Get) -> WebResult<endpoints::Get> {
    let tunnel = agent.tunnels.find(&get.name).ok_or_else(WebRejection::not_found)?;
    Ok(tunnel.show_endpoint())
}

async fn replace_endpoint(
    agent: Shared,
    replace: endpoints::Replace,
) -> WebResult<endpoints::Replace> {
    let old = agent.tunnels.find(&replace.name);
    let (running, roots) = (old.clone(), agent.socket_roots.clone());
    let definition = read_definition(move || {
        crate::endpoints::replacement_definition(replace, running.as_deref(), &roots)
    })
    .await;
    let Some(old) = old else {
        return Ok(start_defined(&agent, definition).await?.show_endpoint());
    };
    let definition = definition.map_err(|problems| WebRejection::invalid_tunnel(&problems))?;
    let serves_wrappers = agent.options.serves_wrappers;
    let replaced =
        run_to_completion(async move { agent.replace_tunnel(&old, definition).await }).await?;
    let rejected = |error: crate::endpoints::ReplaceError| {
        start_rejection(error.problem, serves_wrappers).with_line(&error.outcome)
    };
    let tunnel = replaced.map_err(rejected)?;
    Ok(tunnel.show_endpoint())
}

async fn stop_endpoint(agent: Shared, stop: endpoints::Stop) -> WebResult<endpoints::Stop> {
    stop_named(agent, stop.name).await
}

/// Does something as a whole, although the client may leave before the end.
async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, WebRejection> {
    ginnel_base::tasks::spawn(work)
        .await
        .map_err(|error| WebRejection::internal_error(error.to_string()))
}

async fn list_requests(agent: Shared, list: requests::List) -> WebResult<requests::List> {
    let limit = usize::try_from(list.limit.unwrap_or(DEFAULT_REQUESTS)).unwrap_or(usize::MAX);
    let records = agent.captures.list(limit, list.tunnel_name.as_deref());
    let shown = records.iter().map(|record| record.to_listed_request()).collect();
    Ok(Page::whole(&requests::List::INFO, "/api", shown))
}

async fn get_request(agent: Shared, get: requests::Get) -> WebResult<requests::Get> {
    let record = agent.captures.find(&get.id).ok_or_else(WebRejection::not_found)?;
    Ok(record.to_captured_request())
}

async fn list_messages(agent: Shared, list: requests::Messages) -> WebResult<requests::Messages> {
    let record = agent.captures.find(&list.id).ok_or_else(WebRejection::not_found)?;
    let after = list.after.and_then(|after| u64::try_from(after).ok()).unwrap_or_default();
    let limit = usize::try_from(list.limit.unwrap_or(DEFAULT_REQUESTS)).unwrap_or(usize::MAX);
    let exchange = record.lock_exchange().clone();
    let items = messages::items_after(&exchange, after, limit);
    let [_, target, _] = exchange.request.start_line();
    let shown = items.into_iter().map(|item| {
        let decoded =
            messages::decode_message(&agent.proto_files, &target, &item, BytesDisplay::Shown);
        requests::StreamMessage {
            message_type: Note(decoded.as_ref().map(|it| it.type_name.clone()).unwrap_or_default()),
            message: decoded.map(|it| it.value),
            ..item.into_stream_message(record.local_start())
        }
    });
    let shown = shown.collect();
    let page = Page::whole(&requests::Messages::INFO, "/api", shown);
    Ok(Page { uri: format!("/api/requests/http/{}/messages", record.id), ..page })
}

async fn replay_request(agent: Shared, replay: requests::Replay) -> WebResult<requests::Replay> {
    let plan = ReplayPlan::new(replay.addr.as_deref(), replay.times, replay.interval);
    let plan = plan.map_err(not_sent)?;
    agent.replay_request(&replay.id, replay.tunnel_name.as_deref(), plan).await.map_err(not_sent)
}

async fn send_request(agent: Shared, send: requests::Send) -> WebResult<requests::Send> {
    let plan = ReplayPlan::new(send.addr.as_deref(), None, None).map_err(not_sent)?;
    let tunnel = send.tunnel_name.map_or_else(|| agent.usual_tunnel(), Ok).map_err(not_sent)?;
    let mut headers = flatten_headers(send.headers.unwrap_or_default());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        let running = agent.tunnels.find(&tunnel);
        let host = running.map(|tunnel| tunnel.definition.address.host_header());
        headers.insert(0, ("Host".to_owned(), host.unwrap_or_default()));
    }
    let edits = RequestEdits {
        method: Some(send.method),
        target: Some(send.target),
        headers: Some(headers),
        body_text: None,
        body: one_body(send.body, send.body_base64).map_err(WebRejection::invalid_body)?,
        trailers: send.trailers.map(flatten_headers),
    };
    let mut empty = Vec::new();
    HeadWriter::begin_request("GET", &["/"], &mut empty).end();
    let raw = edits.apply_to(&CapturedMessage::new(&empty, false), &CaptureSource::default());
    let raw = raw.map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    let id = agent.send_request(&tunnel, raw, None, plan).await.map_err(not_sent)?;
    Ok(requests::SentRequest { id })
}

/// Headers one by one.
fn flatten_headers(headers: BTreeMap<String, Vec<String>>) -> Vec<(String, String)> {
    let each = headers
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
    each.collect()
}

fn not_sent(error: ReplayError) -> WebRejection {
    match error {
        ReplayError::NoRecord(_) | ReplayError::NoTunnel(_) | ReplayError::NoTunnels => {
            WebRejection::gone(error.to_string())
        }
        _ => WebRejection::new(400, 105, "request cannot be replayed", error.to_string()),
    }
}

async fn load_requests(agent: Shared, load: requests::Load) -> WebResult<requests::Load> {
    if !agent.captures.is_on() {
        let problem = "nothing is captured: inspect_db_size is -1";
        return Err(WebRejection::invalid_body(problem));
    }
    // Archives are long, and what else the agent does goes on.
    let reading = ginnel_base::tasks::spawn_blocking(move || {
        let archive = archive::read_archive(&load.log, agent.captures.max_body_bytes())?;
        let (problems, ignored) = (archive.problems, archive.ignored);
        let skipped = i64::try_from(archive.skipped).unwrap_or(i64::MAX);
        let ids = agent.captures.import_captures(archive.captures);
        Ok(requests::ImportedRequests { ids, skipped, problems, ignored })
    });
    let read = reading.await.map_err(|error| WebRejection::internal_error(error.to_string()))?;
    read.map_err(|problem: String| WebRejection::invalid_body(problem))
}

async fn update_request(agent: Shared, update: requests::Update) -> WebResult<requests::Update> {
    let changed = agent.captures.annotate(&update.id, update.pinned, update.note);
    let changed = changed.map_err(|error| WebRejection::invalid_body(error.to_string()))?;
    changed.map(|record| record.to_captured_request()).ok_or_else(WebRejection::not_found)
}

async fn delete_request(agent: Shared, delete: requests::Delete) -> WebResult<requests::Delete> {
    match agent.captures.remove(&delete.id) {
        true => Ok(()),
        false => Err(WebRejection::not_found()),
    }
}

async fn clear_requests(agent: Shared, _: requests::Clear) -> WebResult<requests::Clear> {
    match agent.captures.clear() {
        None => Ok(()),
        Some(emptied) => match emptied.await {
            Ok(emptied) => emptied.map_err(not_emptied),
            Err(_) => Err(not_emptied("it is closed".to_owned())),
        },
    }
}

fn not_emptied(problem: String) -> WebRejection {
    WebRejection::internal_error(format!("inspect_file: cannot be emptied: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_table_has_one_handler() {
        let name = |info: &ginnel_api::Info| format!("{}.{}", info.resource, info.name);
        let mut handled: Vec<_> = all_handlers().iter().map(|handler| name(handler.info)).collect();
        let mut declared: Vec<_> = ginnel_api::local::operations().map(name).collect();
        handled.sort();
        declared.sort();

        assert_eq!(handled, declared);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_definition_is_read_while_other_calls_go_on() {
        let document = serde_json::json!({"addr": "unix:/nowhere/at/all.sock", "proto": "http"});
        let document = document.as_object().cloned().unwrap_or_default();
        let held = ginnel_net::HeldSockets::hold();

        let reading = read_definition(move || Definition::from_document(&document));
        let (read, in_time) = tokio::join!(reading, async { held.release() });

        assert!(in_time && read.is_ok(), "{read:?}");
    }
}
