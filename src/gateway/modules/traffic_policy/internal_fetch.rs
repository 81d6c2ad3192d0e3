//! Requests that actions send to internal endpoints, which have no address that could be dialed.

use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderValue, Request, Response, Uri};
use url::Url;

use crate::gateway::events::RequestTrace;
use crate::gateway::http::error_response;
use crate::gateway::http::head;
use crate::gateway::http::request_body::RequestBody;
use crate::gateway::http::request_context::RequestContext;
use crate::gateway::modules::traffic_policy::buffered_body::{BufferedBody, gather};
use crate::gateway::routing::internal::is_internal;
use crate::gateway::routing::virtual_host::Rejection;
use crate::policy::{Fetch, FetchFailed, Fetched};

/// How many hops a request counts for that an action sends, on top of its own: each may be tried three times.
const EXTRA_HOPS: usize = 1;

/// Whether a URL is one of an internal endpoint, by its host.
pub(super) fn is_for(url: &str) -> bool {
    let url = Url::parse(url).ok();
    url.is_some_and(|url| url.host_str().is_some_and(is_internal))
}

/// Does what an action asks for at internal endpoints, as if the visitor had been forwarded there.
pub(super) async fn fetch(context: &RequestContext<'_>, spec: &Fetch) -> Fetched {
    let fetched = async {
        let (mut next, mut left) = (spec.url.clone(), spec.max_redirects);
        loop {
            let response = once(context, spec, &next).await?;
            match location(&next, &response).filter(|_| left > 0) {
                None => return Ok(response),
                Some(location) if is_for(&location) => {
                    left -= 1;
                    next = location;
                }
                Some(_) => return Err(unreachable("a redirect leads to no internal endpoint")),
            }
        }
    };
    tokio::time::timeout(spec.timeout, fetched).await.unwrap_or(Err(FetchFailed::Late))
}

async fn once(context: &RequestContext<'_>, spec: &Fetch, url: &str) -> Fetched {
    let mut trace = RequestTrace::default();
    let mut inner = context.within(&mut trace);
    inner.hops += EXTRA_HOPS;
    let (virtual_host, address) = inner.internal(url).await.map_err(|error| match error {
        error_response::TOO_MANY_HOPS => FetchFailed::Loop,
        _ => unreachable("no endpoint is online there"),
    })?;
    let mut request = request(spec, url)?;
    let ambiguous_paths = context.gateway.live.load().ambiguous_paths;
    let found = virtual_host.find(request.uri().path(), ambiguous_paths);
    let found = found.map_err(|error| unreachable(error.text()))?;
    let (route, path) = (found.route.clone(), found.path);
    if let Some(path) = path {
        head::set_path(&mut request, &path).map_err(|error| unreachable(error.text()))?;
    }
    let response = match route.serve_within(&mut inner, address, request).await {
        Ok(response) => response,
        Err(Rejection::Respond(error)) => {
            error.into_response(&context.gateway.settings.code_prefix)
        }
        Err(_) => return Err(unreachable("the endpoint closed the connection")),
    };
    let (head, mut body) = response.into_parts();
    match gather(&mut body, spec.limit).await {
        Ok(BufferedBody::Whole(bytes, _)) => Ok(Response::from_parts(head, bytes)),
        Ok(BufferedBody::Begun(_)) => Err(FetchFailed::TooLong),
        Err(_) => Err(unreachable("the response broke off")),
    }
}

fn request(spec: &Fetch, url: &str) -> Result<Request<RequestBody>, FetchFailed> {
    let url = Url::parse(url).map_err(unreachable)?;
    let authority = match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut request = Request::new(RequestBody::full(spec.body.clone()));
    *request.method_mut() = spec.method.clone();
    *request.uri_mut() = target.parse::<Uri>().map_err(unreachable)?;
    *request.headers_mut() = spec.headers.clone();
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::try_from(authority).map_err(unreachable)?);
    if !spec.body.is_empty() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(spec.body.len()));
    }
    Ok(request)
}

/// Where a response leads; none where it does not.
fn location<B>(url: &str, response: &Response<B>) -> Option<String> {
    let leads = response.status().is_redirection();
    let location = response.headers().get(LOCATION).filter(|_| leads)?;
    Url::parse(url).ok()?.join(location.to_str().ok()?).ok().map(String::from)
}

fn unreachable(problem: impl ToString) -> FetchFailed {
    FetchFailed::Unreachable(problem.to_string())
}
