//! Files that are named by a URL.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;

use ginnel_base::address::{AddressError, WebUrl};
use ginnel_net::{DialRole, OutboundClient, OutboundError, OutboundOptions, Reach, tls};

use crate::runtime;

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const MAX_BYTES: usize = 1 << 20;

/// Why a file was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{0}")]
    Url(AddressError),
    #[error("is neither http nor https")]
    Scheme,
    #[error("leads to a URL that {0}")]
    Redirect(AddressError),
    #[error("has more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("{0}")]
    Failed(String),
    #[error("the response has status {0}")]
    Status(u16),
    #[error("is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("is no text")]
    NoText,
}

/// The text at an address of `http` or `https`.
///
/// # Errors
/// Where there is none within the limits.
pub(super) fn fetch_text(url: &str) -> Result<String, FetchError> {
    let parsed = WebUrl::parse_with_login(url).map_err(|problem| match problem {
        AddressError::Scheme(_) => FetchError::Scheme,
        problem => FetchError::Url(problem),
    })?;
    let runtime = runtime::start_runtime().map_err(|error| FetchError::Failed(error.message))?;
    runtime.block_on(request_text(parsed))
}

async fn request_text(url: WebUrl) -> Result<String, FetchError> {
    let tls = tls::client_config(tls::system_roots())
        .map_err(|error| FetchError::Failed(error.to_string()))?;
    let client = OutboundClient::new(OutboundOptions {
        role: DialRole::CommandFile,
        reach: Reach::Any,
        tls,
        timeout: Some(TIMEOUT),
        uses_proxy: true,
    });
    let sent = client.send_and_follow(Method::GET, &url, &HeaderMap::new(), MAX_REDIRECTS).await;
    let mut response = sent.map_err(not_fetched)?;
    if !response.status().is_success() {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(fetch_error)? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_BYTES {
            return Err(FetchError::TooLong);
        }
    }
    String::from_utf8(body).map_err(|_| FetchError::NoText)
}

/// Returns the cause of a missing response.
fn not_fetched(problem: OutboundError) -> FetchError {
    match problem {
        OutboundError::Failed(problem) => fetch_error(problem),
        OutboundError::Redirect(problem) => FetchError::Redirect(problem),
        OutboundError::TooManyRedirects(_) => FetchError::TooManyRedirects,
        problem => FetchError::Failed(problem.to_string()),
    }
}

/// What went wrong, without the address, which may hold secrets.
fn fetch_error(error: reqwest::Error) -> FetchError {
    if error.is_timeout() {
        return FetchError::Failed(format!("no response within {} s", TIMEOUT.as_secs()));
    }
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    FetchError::Failed(cause.to_string())
}
