//! The way of every request: the same checks in the same order, then its handler.
//!
//! Route, method, auth, version, rate limit, query, content type, size, JSON, fields, references
//! (remote API sheet, section 1). The router has found the route before a request comes here;
//! references are checked by handlers, inside the transaction that relies on them.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Instant;

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Request, request};
use hyper::body::Incoming;
use serde_json::{Map, Value};
use tracing::Instrument;

use ginnel_api::id::prefix;
use ginnel_api::{HandlerFuture, Info, success_response};
use ginnel_base::logging::ignore;
use ginnel_gateway::Ingress;
use ginnel_gateway::message::forwarded::ForwardedVisitor;
use ginnel_net::PeerAddress;

use super::audit::AuditedCall;
use super::context::{Context, ServiceState};
use super::handlers::{Handler, PathHandlers};
use super::store::{StorageFault, StoreError};
use super::{Refusal, Result, body, code, cors, decode};

/// Says that changes are not stored, for the database file has lost its name.
const STORE_HEADER: HeaderName = HeaderName::from_static("ginnel-store");

/// Names the request, as in `details.operation_id` where it failed.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The name of a request, in its extensions.
#[derive(Clone)]
struct RequestId(String);

/// Gives a request a name, which its answer says.
pub(super) async fn with_request_id<F: Future<Output = Response>>(
    shared: &ServiceState,
    mut request: Request<Incoming>,
    respond: impl FnOnce(Request<Incoming>) -> F,
) -> Response {
    // Without random bytes nothing has a name; that is no reason to refuse a request.
    let Ok(id) = shared.operation_ids.next(prefix::OPERATION) else {
        return respond(request).await;
    };
    let value = HeaderValue::try_from(&id);
    let span = tracing::debug_span!("operation", op_id = %id);
    request.extensions_mut().insert(RequestId(id));
    let mut response = respond(request).instrument(span).await;
    if let Ok(value) = value {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// A successful answer.
pub(super) struct EncodedResponse {
    pub status: u16,
    /// Empty when there is none.
    pub body: Vec<u8>,
}

/// Answers a request to a known path.
pub(super) async fn respond_to(
    shared: &Arc<ServiceState>,
    endpoint: &PathHandlers,
    head: &request::Parts,
    body: &mut Incoming,
) -> Response {
    if let Some(response) = cors::preflight_response(head, &endpoint.methods) {
        return response;
    }
    let started = Instant::now();
    let handler = endpoint.handler_for(&head.method);
    let result = match handler {
        Some(handler) => {
            if let Some(response) = injected_response(shared, handler.info, head).await {
                return response;
            }
            perform_operation(shared, handler, head, body).await
        }
        None => {
            let allowed = format!("{}, OPTIONS", endpoint.methods);
            Err(Refusal::no_such_method(head.uri.path(), &allowed))
        }
    };
    let response = respond_encoded(shared, &head.headers, body, result).await;
    if let Some(handler) = handler {
        if let Some(metrics) = &shared.metrics {
            let name = head.extensions.get().map(|RequestId(id)| id.as_str());
            let status = response.status().as_u16();
            metrics.record_response(handler.info, status, started.elapsed(), name);
        }
        let (method, path) = (handler.info.method.as_str(), handler.info.path);
        let dur_ms = started.elapsed().as_secs_f64() * 1000.0;
        tracing::debug!(status = response.status().as_u16(), dur_ms, "{method} {path}");
    }
    response
}

/// The answer of a test double, where a test has asked for one.
async fn injected_response(
    shared: &ServiceState,
    info: &Info,
    head: &request::Parts,
) -> Option<Response> {
    let fault = shared.rehearsal.next(info)?;
    shared.rehearsal.wait_delay(fault.delay).await;
    let response = fault.to_response(&shared.code_prefix)?;
    if shared.rehearsal.records_calls() {
        let status = Some(response.status().as_u16()).filter(|_| !fault.cut);
        shared.rehearsal.record_call(info, head, None, status);
    }
    Some(response)
}

/// Runs the checks and the handler.
async fn perform_operation(
    shared: &Arc<ServiceState>,
    handler: &Handler,
    head: &request::Parts,
    body: &mut Incoming,
) -> Result<EncodedResponse> {
    let info = handler.info;
    let records = shared.rehearsal.records_calls();
    let decoded = OnceLock::new();
    let serve = |context: Context, arguments: Map<String, Value>| {
        if records {
            ignore(decoded.set(arguments.clone()), "set once only, because this is called once");
        }
        async move {
            let answered = catch_panic(handler.perform_operation(context, arguments)).await?;
            Ok(EncodedResponse { status: info.success_status(), body: answered })
        }
    };
    let result = check_and_serve(shared, info, head, body, serve).await;
    if records {
        let status = match &result {
            Ok(answer) => answer.status,
            Err(refusal) => refusal.status(),
        };
        shared.rehearsal.record_call(info, head, decoded.into_inner(), Some(status));
    }
    result
}

/// Turns the outcome into the answer.
pub(super) async fn respond_encoded(
    shared: &ServiceState,
    headers: &HeaderMap,
    body: &mut Incoming,
    result: Result<EncodedResponse>,
) -> Response {
    let result = result.map(|success| success_response(success.status, success.body));
    finish_response(shared, headers, body, result).await
}

/// The same where a success is a response of its own.
pub(super) async fn finish_response(
    shared: &ServiceState,
    headers: &HeaderMap,
    body: &mut Incoming,
    result: Result<Response>,
) -> Response {
    let mut response = match result {
        Ok(response) => response,
        Err(refusal) => {
            body::drain_body(headers, body).await;
            refusal.into_response(&shared.code_prefix)
        }
    };
    if shared.store.is_read_only() {
        response.headers_mut().insert(STORE_HEADER, HeaderValue::from_static("read-only"));
    }
    cors::allow_reading(headers, response.headers_mut());
    response
}

/// Finds out who calls, then runs all checks up to the fields, and `serve` when they pass.
pub(super) async fn check_and_serve<T, F>(
    shared: &Arc<ServiceState>,
    info: &'static Info,
    head: &request::Parts,
    body: &mut Incoming,
    serve: impl FnOnce(Context, Map<String, Value>) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let address = caller_address(shared, head);
    let found = match check_news(shared).and_then(|()| check_address(shared, info, address)) {
        Ok(()) => shared.callers.find(&shared.store, &head.headers).await,
        Err(refusal) => Err(refusal),
    };
    let id = head.extensions.get().map(|RequestId(id)| id.as_str());
    let path = head.uri.path();
    let call =
        AuditedCall::from_operation(info, path, id, found.as_ref().ok(), address).map(Arc::new);
    let result = match found {
        Ok(caller) => {
            let context = Context { shared: shared.clone(), caller, address, call: call.clone() };
            let result = match read_arguments(shared, info, head, body).await {
                Ok(arguments) => serve(context, arguments).await,
                Err(refusal) => Err(refusal),
            };
            result.map_err(|refusal| match id {
                Some(id) => refusal.with_detail("operation_id", id),
                None => refusal,
            })
        }
        Err(refusal) => Err(refusal),
    };
    if let Some(call) = call {
        shared.audit.record_result(&call, &result);
    }
    result
}

/// Where a call comes from: whoever has connected, or somebody for whom a trusted proxy has.
pub(super) fn caller_address(shared: &ServiceState, head: &request::Parts) -> Option<IpAddr> {
    let peer = head.extensions.get::<PeerAddress>()?;
    let trusted = &shared.live.load().trusted_proxies;
    let client = ForwardedVisitor::from_headers(&head.headers, peer.0, trusted).address;
    Some(client.ip().to_canonical())
}

/// Refuses a call of an operation from where an IP restriction allows none.
fn check_address(shared: &ServiceState, info: &Info, address: Option<IpAddr>) -> Result<()> {
    match info.resource {
        "console" => check_ingress(shared, Ingress::Dashboard, address),
        _ => check_ingress(shared, Ingress::Api, address),
    }
}

/// Refuses what comes from where an IP restriction allows nobody.
pub(super) fn check_ingress(
    shared: &ServiceState,
    ingress: Ingress,
    address: Option<IpAddr>,
) -> Result<()> {
    let restrictions = shared.gateway.restrictions();
    let admitted = match address {
        Some(address) => restrictions.allows_address(ingress, address),
        None => restrictions.is_open(ingress),
    };
    if admitted {
        return Ok(());
    }
    let message = "an IP restriction does not allow the address of the caller";
    Err(Refusal::new(code::ADDRESS_RESTRICTED, message))
}

/// Refuses to answer on what may not be true any more: another node may have changed it.
fn check_news(shared: &ServiceState) -> Result<()> {
    let Some(age) = shared.cluster.as_ref().and_then(|cluster| cluster.stale_news_age()) else {
        return Ok(());
    };
    let problem = format!("no news of other nodes for {} s", age.as_secs());
    let fault = Some(StorageFault::Unreachable);
    Err(StoreError::Server { fault, problem }.into())
}

async fn read_arguments(
    shared: &ServiceState,
    info: &Info,
    head: &request::Parts,
    body: &mut Incoming,
) -> Result<Map<String, Value>> {
    check_version(&head.headers)?;
    let live = shared.live.load_full();
    live.count_request(Instant::now())?;
    let queried = decode::decode_query(info, head.uri.query())?;
    let body = if info.takes_body() {
        Some(body::read_json(&head.headers, body, &live.limits).await?)
    } else if info.method.has_body() {
        Some(body::read_optional(&head.headers, body, &live.limits).await?)
    } else {
        body::expect_empty(&head.headers, body, &live.limits).await?;
        None
    };
    decode::join_arguments(info, head.uri.path(), queried, body.as_deref())
}

/// `Service-Version` and its alias `Ngrok-Version` must be 2 where they are sent.
fn check_version(headers: &HeaderMap) -> Result<()> {
    for name in ["service-version", "ngrok-version"] {
        for value in headers.get_all(name) {
            if value.as_bytes().trim_ascii() != b"2" {
                let message = format!("{name}: {value:?} is not a supported version; send 2");
                return Err(Refusal::new(code::UNSUPPORTED_VERSION, message));
            }
        }
    }
    Ok(())
}

/// Runs a handler; a panic in it becomes a refusal instead of a lost connection.
async fn catch_panic(mut answer: HandlerFuture<Refusal>) -> Result<Vec<u8>> {
    std::future::poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut answer).poll(context)));
        polled.unwrap_or_else(|_| {
            Poll::Ready(Err(Refusal::new(code::UNEXPECTED, "unexpected failure")))
        })
    })
    .await
}
