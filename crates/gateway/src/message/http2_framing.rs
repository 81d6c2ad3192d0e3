//! The framing of requests that came by HTTP/2, in the terms of HTTP/1.1.
//!
//! HTTP/2 has the length of a body in its frames. Upstreams of HTTP/1.1, and rules, look at the head.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderValue, Method, Request};
use tokio::time::timeout;

use ginnel_base::logging::ignore;

use crate::message::request_body::RequestBody;

/// Maximum time until the first frame of a body that is not usual for the method. Clients that end a GET with an empty
/// DATA frame send that together with the head. Others may wait for the response before they send their body.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_millis(250);

/// Takes the body from a request whose stream ends without a byte of one, and gives a request its length if the method
/// is for requests with a body (RFC 9110, section 8.6).
pub async fn frame_request(request: &mut Request<RequestBody>) {
    if request.headers().contains_key(CONTENT_LENGTH) {
        return;
    }
    if !matches!(request.body(), RequestBody::Empty) {
        await_start(request).await;
    }
    if expects_content(request.method()) && matches!(request.body(), RequestBody::Empty) {
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

/// Looks at the beginning of a body, and waits for it if bodies are not usual for the method.
async fn await_start(request: &mut Request<RequestBody>) {
    let waits = is_usually_empty(request.method()) && !request.headers().contains_key(EXPECT);
    let body = request.body_mut();
    if waits {
        let started = timeout(FIRST_FRAME_TIMEOUT, poll_fn(|cx| body.poll_start(cx))).await;
        ignore(started, "a body that comes later is sent in chunks");
    } else {
        poll_fn(|cx| Poll::Ready(body.poll_start(cx).is_ready())).await;
    }
}

/// Returns true if the method defines a meaning for content.
fn expects_content(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// Returns true if requests with the method seldom have content.
fn is_usually_empty(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS, Method::TRACE].contains(method)
}
