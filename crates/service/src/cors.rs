//! Calls from pages of other origins (remote API sheet, section 1).

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};

use super::pipeline::REQUEST_ID;

/// How long a browser may remember the answer to a preflight.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

/// The answer to a preflight; `None` for any other request.
pub(super) fn preflight_response(head: &request::Parts, methods: &str) -> Option<Response> {
    if head.method != Method::OPTIONS
        || !head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    {
        return None;
    }
    head.headers.get(header::ORIGIN)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    allow_reading(&head.headers, headers);
    if let Ok(methods) = HeaderValue::try_from(format!("{methods}, OPTIONS")) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    if let Some(requested) = head.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    Some(response)
}

/// Lets a page read the answer: the token in each request is what protects it, not its origin.
pub(super) fn allow_reading(request: &HeaderMap, answer: &mut HeaderMap) {
    if let Some(origin) = request.get(header::ORIGIN) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let yes = HeaderValue::from_static("true");
        answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
        answer.insert(header::VARY, HeaderValue::from_static("Origin"));
        answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from(REQUEST_ID));
    }
}
