//! The messages of requests that actions send to internal endpoints, which have no address that could be dialed.

use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderValue, Request, Response, Uri};
use url::Url;

use crate::gateway::http::request_body::RequestBody;
use crate::policy::{Fetch, FetchFailed};

/// What an action asks for, as the endpoint at the URL gets it.
pub(super) fn request(spec: &Fetch, url: &str) -> Result<Request<RequestBody>, FetchFailed> {
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
pub(super) fn location<B>(url: &str, response: &Response<B>) -> Option<String> {
    let leads = response.status().is_redirection();
    let location = response.headers().get(LOCATION).filter(|_| leads)?;
    Url::parse(url).ok()?.join(location.to_str().ok()?).ok().map(String::from)
}

/// Nobody responds, for this reason.
pub(super) fn unreachable(problem: impl ToString) -> FetchFailed {
    FetchFailed::Unreachable(problem.to_string())
}
