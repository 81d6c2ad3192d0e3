//! The messages of requests that actions send to internal endpoints, which have no address that could be dialed.

use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderValue, Request, Response, Uri};

use ginnel_base::address::WebUrl;
use ginnel_policy::{Fetch, FetchFailed};

use crate::message::request_body::RequestBody;

/// What an action asks for, as the endpoint at the URL gets it.
pub(super) fn build_request(
    spec: &Fetch,
    url: &WebUrl,
) -> Result<Request<RequestBody>, FetchFailed> {
    let mut request = Request::new(RequestBody::from_bytes(spec.body.clone()));
    *request.method_mut() = spec.method.clone();
    *request.uri_mut() = url.request_target().parse::<Uri>().map_err(unreachable_failure)?;
    *request.headers_mut() = spec.headers.clone();
    let headers = request.headers_mut();
    headers.insert(
        HOST,
        HeaderValue::try_from(url.authority().host_header()).map_err(unreachable_failure)?,
    );
    if !spec.body.is_empty() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(spec.body.len()));
    }
    Ok(request)
}

/// Where a response leads; none where it does not.
pub(super) fn redirect_location<B>(url: &WebUrl, response: &Response<B>) -> Option<WebUrl> {
    let leads = response.status().is_redirection();
    let location = response.headers().get(LOCATION).filter(|_| leads)?;
    url.join(location.to_str().ok()?).ok()
}

/// Nobody responds, for this reason.
pub(super) fn unreachable_failure(problem: impl ToString) -> FetchFailed {
    FetchFailed::Unreachable(problem.to_string())
}
