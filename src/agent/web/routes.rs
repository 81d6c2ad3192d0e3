//! From paths to resources.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::rejection::WebRejection;
use super::{WebState, answer, guard};
use crate::agent::page;

/// The body of an answer.
pub(in crate::agent) type WebBody = UnsyncBoxBody<Bytes, Infallible>;
/// How long the body of a request may be.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What a path names.
enum WebResource {
    Root,
    Status,
    Tunnels,
    Tunnel(String),
    Requests,
    Request(String),
}

/// Answers one request.
pub(super) async fn serve(state: &WebState, request: Request<Incoming>) -> Response<WebBody> {
    let is_head = request.method() == Method::HEAD;
    let mut response = match perform(state, request).await {
        Ok(response) => response,
        Err(rejection) => rejection.answer(),
    };
    if is_head {
        *response.body_mut() = whole("");
    }
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn perform(
    state: &WebState,
    request: Request<Incoming>,
) -> Result<Response<WebBody>, WebRejection> {
    let (head, body) = request.into_parts();
    guard::check(&head, &state.hosts)?;
    let path = head.uri.path();
    let shared = &state.shared;
    let Some(resource) = find(path, &head.method, |name| shared.tunnels.find(name).is_some())
    else {
        let page = page::serve(state, &head, body).await;
        return page.unwrap_or_else(|| Err(WebRejection::not_found(path)));
    };
    let query = head.uri.query().unwrap_or_default();
    // HEAD is GET without the body.
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match (&resource, method.as_str()) {
        (WebResource::Root, "GET") => Ok(json(StatusCode::OK, &answer::root())),
        (WebResource::Status, "GET") => Ok(json(StatusCode::OK, &answer::status(shared))),
        (WebResource::Tunnels, "GET") => Ok(json(StatusCode::OK, &answer::tunnels(shared))),
        (WebResource::Tunnels, "POST") => {
            let started = answer::start(shared, &read(body, MAX_BODY_BYTES).await?).await?;
            Ok(json(StatusCode::CREATED, &started))
        }
        (WebResource::Tunnel(name), "GET") => match shared.tunnels.find(name) {
            Some(tunnel) => Ok(json(StatusCode::OK, &tunnel.show())),
            None => Err(WebRejection::not_found(path)),
        },
        (WebResource::Tunnel(name), "DELETE") => match answer::stop(shared, name.clone()).await? {
            true => Ok(nothing()),
            false => Err(WebRejection::not_found(path)),
        },
        (WebResource::Requests, "GET") => {
            Ok(json(StatusCode::OK, &answer::requests(shared, query)?))
        }
        (WebResource::Requests, "POST") => {
            answer::replay(shared, &read(body, MAX_BODY_BYTES).await?).await?;
            Ok(nothing())
        }
        (WebResource::Requests, "DELETE") => {
            shared.captures.clear();
            Ok(nothing())
        }
        (WebResource::Request(id), "GET") => match shared.captures.find(id) {
            Some(record) => Ok(json(StatusCode::OK, &record.show())),
            None => Err(WebRejection::not_found(path)),
        },
        _ => Err(WebRejection::wrong_method(path, resource.methods())),
    }
}

impl WebResource {
    fn methods(&self) -> &'static str {
        match self {
            Self::Root | Self::Status | Self::Request(_) => "GET, HEAD",
            Self::Tunnels => "GET, HEAD, POST",
            Self::Tunnel(_) => "GET, HEAD, DELETE",
            Self::Requests => "GET, HEAD, POST, DELETE",
        }
    }
}

/// What a path names. A slash at the end makes no difference, but at the list of tunnels it may mean
/// the tunnel without a name.
fn find(path: &str, method: &Method, runs: impl Fn(&str) -> bool) -> Option<WebResource> {
    let rest = path.strip_prefix("/api")?;
    if rest == "/tunnels/" && (method == Method::DELETE || method != Method::POST && runs("")) {
        return Some(WebResource::Tunnel(String::new()));
    }
    match rest.strip_suffix('/').unwrap_or(rest) {
        "" => Some(WebResource::Root),
        "/status" => Some(WebResource::Status),
        "/tunnels" => Some(WebResource::Tunnels),
        "/requests/http" => Some(WebResource::Requests),
        rest => {
            let segment = |rest: &str| {
                let plain = !rest.is_empty() && !rest.contains('/');
                let spaced = plain.then(|| rest.replace('+', " "))?;
                percent_decode_str(&spaced).decode_utf8().ok().map(|text| text.into_owned())
            };
            let tunnel = rest.strip_prefix("/tunnels/").and_then(segment).map(WebResource::Tunnel);
            tunnel.or_else(|| {
                rest.strip_prefix("/requests/http/").and_then(segment).map(WebResource::Request)
            })
        }
    }
}

/// The body of a request.
pub(in crate::agent) async fn read(body: Incoming, longest: usize) -> Result<Bytes, WebRejection> {
    match Limited::new(body, longest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(WebRejection::too_large(longest)),
        Err(error) => Err(WebRejection::invalid_body(error.to_string())),
    }
}

/// A body that is there at once.
pub(in crate::agent) fn whole(bytes: impl Into<Bytes>) -> WebBody {
    Full::new(bytes.into()).boxed_unsync()
}

fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<WebBody> {
    // The types of the API always make JSON.
    let body = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(whole(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn nothing() -> Response<WebBody> {
    let mut response = Response::new(whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
