//! Answers to the operations on mocks, holds and the requests that wait.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use ginnel_api::local::{held_requests, holds, mocks};
use ginnel_api::{Base64, Operation, Page, Timestamp, on};

use super::handler::{Shared, WebHandler, WebResult};
use super::rejection::WebRejection;
use crate::capture::CapturedMessage;
use crate::edits::RequestEdits;
use crate::intercept::{
    HoldDecision, InterceptRule, MockResponse, RuleAction, RuleError, WaitingRequest,
};

/// The status of a refusal when nobody says another.
const REFUSAL_STATUS: i64 = 403;

/// Every handler of these resources.
pub(super) fn all_handlers() -> Vec<WebHandler> {
    vec![
        on(list_mocks),
        on(add_mock),
        on(get_mock),
        on(update_mock),
        on(delete_mock),
        on(clear_mocks),
        on(list_holds),
        on(add_hold),
        on(get_hold),
        on(update_hold),
        on(delete_hold),
        on(clear_holds),
        on(list_held),
        on(get_held),
        on(release_held),
        on(refuse_held),
        on(flush_held),
    ]
}

async fn list_mocks(agent: Shared, _: mocks::List) -> WebResult<mocks::List> {
    let all = agent.interceptors.mocks().all();
    let shown = all.iter().map(|mock| show_rule(mock)).collect::<Result<_, _>>()?;
    Ok(Page::whole(&mocks::List::INFO, "/api", shown))
}

async fn add_mock(agent: Shared, add: mocks::Add) -> WebResult<mocks::Add> {
    let mut added = operation_fields(&add)?;
    if let Some(Value::String(id)) = added.remove("captured_id") {
        let mut captured =
            fields_from_capture(&agent, &id).map_err(|problem| invalid_mock(&problem))?;
        if MockResponse::ALTERNATIVES.iter().any(|name| added.contains_key(*name)) {
            captured.retain(|name, _| !MockResponse::ALTERNATIVES.contains(&name.as_str()));
        }
        captured.extend(added);
        added = captured;
    }
    show_rule(&*agent.interceptors.add_mock(added, false).map_err(mock_rejection)?)
}

/// The fields of a mock that responds as the local service did to a captured request.
fn fields_from_capture(agent: &Shared, id: &str) -> Result<Map<String, Value>, String> {
    let record = agent.captures.find(id);
    let record =
        record.ok_or_else(|| format!("captured_id: no captured request has the id {id:?}"))?;
    let exchange = record.lock_exchange();
    let response = exchange.response.as_ref();
    let response = response.ok_or("captured_id: the captured request has no response")?;
    if !response.is_whole() {
        let problem = "captured_id: the body of the response is not whole: it is longer than what was \
            captured, or did not come to its end yet";
        return Err(problem.to_owned());
    }
    let mut fields = MockResponse::fields_from_response(response);
    // What somebody responded is no template.
    fields.insert("template".to_owned(), false.into());
    Ok(fields)
}

async fn get_mock(agent: Shared, get: mocks::Get) -> WebResult<mocks::Get> {
    show_rule(&*agent.interceptors.mocks().find(&get.id).ok_or_else(WebRejection::not_found)?)
}

async fn update_mock(agent: Shared, update: mocks::Update) -> WebResult<mocks::Update> {
    let mut changes = operation_fields(&update)?;
    if update.times == Some(0) {
        // Null takes a value away, which JSON clients that leave nulls out cannot say.
        changes.insert("times".to_owned(), Value::Null);
    }
    let changed = agent.interceptors.update_mock(&update.id, changes);
    show_rule(&*changed.map_err(mock_rejection)?)
}

async fn delete_mock(agent: Shared, delete: mocks::Delete) -> WebResult<mocks::Delete> {
    check_removed(agent.interceptors.remove_mock(Some(&delete.id)))
}

async fn clear_mocks(agent: Shared, _: mocks::Clear) -> WebResult<mocks::Clear> {
    agent.interceptors.remove_mock(None);
    Ok(())
}

async fn list_holds(agent: Shared, _: holds::List) -> WebResult<holds::List> {
    let all = agent.interceptors.holds().all();
    let shown = all.iter().map(|hold| show_rule(hold)).collect::<Result<_, _>>()?;
    Ok(Page::whole(&holds::List::INFO, "/api", shown))
}

async fn add_hold(agent: Shared, add: holds::Add) -> WebResult<holds::Add> {
    show_rule(&*agent.interceptors.add_hold(operation_fields(&add)?).map_err(hold_rejection)?)
}

async fn get_hold(agent: Shared, get: holds::Get) -> WebResult<holds::Get> {
    show_rule(&*agent.interceptors.holds().find(&get.id).ok_or_else(WebRejection::not_found)?)
}

async fn update_hold(agent: Shared, update: holds::Update) -> WebResult<holds::Update> {
    let changed = agent.interceptors.update_hold(&update.id, operation_fields(&update)?);
    show_rule(&*changed.map_err(hold_rejection)?)
}

async fn delete_hold(agent: Shared, delete: holds::Delete) -> WebResult<holds::Delete> {
    check_removed(agent.interceptors.remove_hold(Some(&delete.id)))
}

async fn clear_holds(agent: Shared, _: holds::Clear) -> WebResult<holds::Clear> {
    agent.interceptors.remove_hold(None);
    Ok(())
}

async fn list_held(agent: Shared, _: held_requests::List) -> WebResult<held_requests::List> {
    let shown = agent.interceptors.held().all().iter().map(|held| show_held(held)).collect();
    Ok(Page::whole(&held_requests::List::INFO, "/api", shown))
}

async fn get_held(agent: Shared, get: held_requests::Get) -> WebResult<held_requests::Get> {
    Ok(show_held(&*find_held(&agent, &get.id)?))
}

async fn release_held(
    agent: Shared,
    release: held_requests::Release,
) -> WebResult<held_requests::Release> {
    let held = find_held(&agent, &release.id)?;
    decide_held(&held, decision_from_edits(&held, read_edits(release, &held.request)?)?)
}

async fn refuse_held(
    agent: Shared,
    refuse: held_requests::Refuse,
) -> WebResult<held_requests::Refuse> {
    let held = find_held(&agent, &refuse.id)?;
    let status = refuse.status.unwrap_or(REFUSAL_STATUS);
    let status = u16::try_from(status).ok().filter(|status| (400..=599).contains(status));
    let status = status.ok_or_else(|| {
        let status = refuse.status.unwrap_or_default();
        invalid_change(&format!("status: {status} is not from 400 to 599"))
    })?;
    decide_held(&held, HoldDecision::Refuse(status, refuse.body.unwrap_or_default()))
}

async fn flush_held(agent: Shared, _: held_requests::Flush) -> WebResult<held_requests::Flush> {
    agent.interceptors.held().release_matching(None);
    Ok(())
}

/// The request that waits with this record.
pub(crate) fn find_held(agent: &Shared, id: &str) -> Result<Arc<WaitingRequest>, WebRejection> {
    let held = agent.interceptors.held().find(id);
    held.ok_or_else(|| WebRejection::gone(format!("the request {id} does not wait")))
}

/// What becomes of a request that is let go with these changes.
pub(crate) fn decision_from_edits(
    held: &WaitingRequest,
    edits: RequestEdits,
) -> Result<HoldDecision, WebRejection> {
    if edits.is_empty() {
        return Ok(HoldDecision::Release);
    }
    if !held.request.is_whole() {
        return Err(invalid_change("body: is not all there, and so nothing can be changed"));
    }
    let [method, ..] = held.request.start_line();
    if let Some(edited) = edits.method.as_deref()
        && (edited == "HEAD") != (method == "HEAD")
    {
        // The response would have a body that nobody reads, or none where one is waited for.
        let problem = format!(
            "method: {edited:?} cannot replace {method:?}: only one of them has a body in its response"
        );
        return Err(invalid_change(&problem));
    }
    let raw = edits.apply_to_held(&held.request);
    raw.map(HoldDecision::Change).map_err(|error| invalid_change(&error.to_string()))
}

/// Ends the wait of a request.
pub(crate) fn decide_held(
    held: &WaitingRequest,
    decision: HoldDecision,
) -> Result<(), WebRejection> {
    match held.decide(decision) {
        true => Ok(()),
        false => Err(WebRejection::gone(format!("the request {} waits no more", held.record.id))),
    }
}

fn read_edits(
    mut release: held_requests::Release,
    original: &CapturedMessage,
) -> Result<RequestEdits, WebRejection> {
    let body = one_body(release.body.take(), release.body_base64.take()).map_err(invalid_change)?;
    let headers = release.headers.take().map(|headers| {
        let names_host = headers.keys().any(|name| name.eq_ignore_ascii_case("host"));
        let mut pairs = original.headers();
        pairs.retain(|(name, _)| !names_host && name.eq_ignore_ascii_case("host"));
        for (name, values) in headers {
            pairs.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        pairs
    });
    let held_requests::Release { method, target, .. } = release;
    Ok(RequestEdits { method, target, headers, body, ..RequestEdits::default() })
}

/// The body that is given in one of two ways, as base64.
pub(super) fn one_body(
    text: Option<String>,
    bytes: Option<Base64>,
) -> Result<Option<String>, &'static str> {
    match (text, bytes) {
        (Some(_), Some(_)) => Err("body: is given twice"),
        (Some(text), None) => Ok(Some(STANDARD.encode(text))),
        (None, bytes) => Ok(bytes.map(|bytes| STANDARD.encode(bytes.0))),
    }
}

fn show_held(held: &WaitingRequest) -> held_requests::HeldRequest {
    let time = |moment: chrono::DateTime<chrono::Local>| {
        Timestamp(moment.to_rfc3339_opts(SecondsFormat::Millis, false))
    };
    held_requests::HeldRequest {
        id: held.record.id.clone(),
        uri: format!("/api/requests/held/{}", held.record.id),
        hold_id: held.hold_id.clone(),
        tunnel_name: held.record.tunnel_name.clone(),
        start: time(held.record.local_start()),
        until: time(held.until),
        request: held.request.to_request_message(usize::MAX),
    }
}

/// A rule as the type of its resource.
fn show_rule<T: DeserializeOwned, A: RuleAction>(
    rule: &InterceptRule<A>,
) -> Result<T, WebRejection> {
    serde_json::from_value(rule.to_json())
        .map_err(|error| WebRejection::internal_error(error.to_string()))
}

/// What an operation says of a rule.
fn operation_fields(operation: &impl Serialize) -> Result<Map<String, Value>, WebRejection> {
    match serde_json::to_value(operation) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(WebRejection::internal_error(error.to_string())),
    }
}

fn check_removed(was_there: bool) -> Result<(), WebRejection> {
    if was_there { Ok(()) } else { Err(WebRejection::not_found()) }
}

fn mock_rejection(error: RuleError) -> WebRejection {
    match error {
        RuleError::Unknown => WebRejection::not_found(),
        RuleError::Invalid(problems) => WebRejection::invalid_mock(&problems),
    }
}

fn hold_rejection(error: RuleError) -> WebRejection {
    match error {
        RuleError::Unknown => WebRejection::not_found(),
        RuleError::Invalid(problems) => WebRejection::invalid_hold(&problems),
    }
}

fn invalid_mock(problem: &str) -> WebRejection {
    WebRejection::invalid_mock(&[problem.to_owned()])
}

fn invalid_change(problem: &str) -> WebRejection {
    WebRejection::invalid_change(&[problem.to_owned()])
}
