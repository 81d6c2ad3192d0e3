//! From paths to handlers: one route per path template of the table, and those of the page.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use ginnel_api::local::requests;
use ginnel_api::{Info, Operation, Verb, decode, success_response};

use super::handler::WebOperations;
use super::handlers;
use super::rejection::WebRejection;
use super::{WebState, guard};
use crate::capture::CaptureStore;
use crate::page;

/// How long the body of a request may be, and that of one that brings an archive.
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_ARCHIVE_BYTES: usize = 64 << 20;
/// Where the API begins.
const API_PATH: &str = "/api";

/// The routes of the local API and of the page.
pub(super) fn build_router(state: Arc<WebState>) -> Router {
    let mut router = page::build_router();
    let operations: BTreeMap<_, _> = WebOperations::by_template(handlers::all_handlers())
        .into_iter()
        .map(|(template, operations)| (template, Arc::new(operations)))
        .collect();
    for (template, own) in &operations {
        let path = format!("{API_PATH}{}", template.trim_end_matches('/'));
        // A slash at the end makes no difference, unless what has no name is meant.
        let unnamed = operations.get(format!("{template}/{{name}}").as_str());
        router = router
            .route(&path, template_route(own.clone(), None))
            .route(&format!("{path}/"), template_route(own.clone(), unnamed.cloned()));
    }
    router
        .fallback(|uri: Uri| async move { WebRejection::not_found().with_path(uri.path()) })
        .layer(from_fn_with_state(state.clone(), guard_request))
        .with_state(state)
}

/// Refuses what other sites may send, and completes answers.
async fn guard_request(
    State(state): State<Arc<WebState>>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let mut response = match guard::check_request(&head, &state.hosts) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(rejection) => rejection.into_response(),
    };
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// The route of a template; `unnamed` answers where its path also means the tunnel without a name.
fn template_route(
    own: Arc<WebOperations>,
    unnamed: Option<Arc<WebOperations>>,
) -> MethodRouter<Arc<WebState>> {
    any(move |State(state): State<Arc<WebState>>, request: Request| async move {
        let path = request.uri().path().to_owned();
        let unnamed = unnamed.filter(|_| is_unnamed(&state, request.method()));
        let answered = perform_operation(&state, &unnamed.unwrap_or(own), request).await;
        answered.map_err(|rejection| rejection.with_path(&path))
    })
}

/// Whether `/tunnels/` means the tunnel without a name, and not the list.
fn is_unnamed(state: &WebState, method: &Method) -> bool {
    method == Method::DELETE || method != Method::POST && state.shared.tunnels.find("").is_some()
}

/// Performs an operation: method, body, path and query, then its handler.
async fn perform_operation(
    state: &WebState,
    operations: &WebOperations,
    request: Request,
) -> Result<Response, WebRejection> {
    let (head, body) = request.into_parts();
    let handler = operations.handler_for(&head.method);
    let handler = handler.ok_or_else(|| WebRejection::wrong_method(&operations.methods))?;
    if head.method == Method::POST {
        guard::check_type(&head.headers)?;
    }
    let info = handler.info;
    let body = match info.takes_body() {
        true => Some(read_body(body, longest_body(info, &state.shared.captures)).await?),
        false => None,
    };
    let path = head.uri.path().strip_prefix(API_PATH).unwrap_or_default().replace('+', "%20");
    let queried = decode::decode_query(info, head.uri.query(), i64::MAX as u64);
    let is_long = body.as_ref().is_some_and(|body| body.len() > MAX_BODY_BYTES);
    let decode = move || decode::decode_arguments(info, &path, queried, body.as_deref());
    let decoded = match is_long {
        // An archive takes its time, and what else the agent does goes on.
        true => {
            let decoding = ginnel_base::tasks::spawn_blocking(decode).await;
            decoding.map_err(|error| WebRejection::internal_error(error.to_string()))?
        }
        false => decode(),
    };
    if let Some(rejection) = WebRejection::from_arguments(info.resource, &decoded) {
        return Err(rejection);
    }
    // What is put where nothing was is made.
    let is_new = info.method == Verb::PUT && {
        let name = decoded.arguments.get("name").and_then(Value::as_str);
        name.is_none_or(|name| state.shared.tunnels.find(name).is_none())
    };
    let body = handler.perform_operation(state.shared.clone(), decoded.arguments).await?;
    Ok(success_response(if is_new { 201 } else { info.success_status() }, body))
}

/// The maximum length of the body of an operation.
fn longest_body(info: &Info, captures: &CaptureStore) -> usize {
    match info.path {
        path if path == requests::Load::INFO.path => MAX_ARCHIVE_BYTES,
        path if path == requests::Send::INFO.path => longest_edit(captures),
        _ => MAX_BODY_BYTES,
    }
}

/// The maximum length of the JSON of a request to send, whose body may be as long as one that is captured.
pub(crate) fn longest_edit(captures: &CaptureStore) -> usize {
    // The body is in Base64, or has escapes.
    MAX_BODY_BYTES + 2 * captures.max_body_bytes()
}

/// The body of a request.
pub(crate) async fn read_body(body: Body, longest: usize) -> Result<Bytes, WebRejection> {
    match Limited::new(body, longest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(WebRejection::too_large(longest)),
        Err(error) => Err(WebRejection::invalid_body(error.to_string())),
    }
}
