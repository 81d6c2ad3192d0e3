//! The headers of requests: those of the client itself, and those of its user.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use ginnel_api::Secret;
use ginnel_base::address::RequestHost;
use ginnel_http1::coding::ACCEPT_ENCODING;
use ginnel_http1::{HeadWriter, is_hop_by_hop};

use super::base_url::BaseUrl;
use super::config_error::ConfigError;
use super::options::ClientOptions;

/// The header that asks for a version of the API.
pub(super) const SERVICE_VERSION: HeaderName = HeaderName::from_static("service-version");
const USER_AGENT: &str = concat!("ginnel/", env!("CARGO_PKG_VERSION"));

/// The headers that the client sends with each request.
pub(super) fn default_headers(
    options: &ClientOptions,
    origin: &BaseUrl,
    api_key: Option<&Secret>,
) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, header_value("base_url", &origin.host_header())?);
    if let Some(key) = api_key {
        let mut bearer = header_value("api_key", &format!("Bearer {}", key.0))?;
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
        let version = options.service_version.as_deref().unwrap_or("2");
        headers.insert(SERVICE_VERSION, header_value("service_version", version)?);
    }
    let agent = match &options.app {
        Some(app) => format!("{app} {USER_AGENT}"),
        None => USER_AGENT.to_owned(),
    };
    headers.insert(header::USER_AGENT, header_value("app", &agent)?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    // Not worth its time where the bytes never leave the machine.
    if !origin.is_loopback() {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    }
    Ok(headers)
}

/// Headers of the user.
pub(super) fn checked_headers(headers: &[(String, String)]) -> Result<HeaderMap, ConfigError> {
    let mut checked = HeaderMap::new();
    for (name, text) in headers {
        let wrong = |problem: &str| ConfigError::new("headers", format!("{name:?} {problem}"));
        let header_name = HeaderName::try_from(name.as_str())
            .map_err(|_| wrong("is not the name of a header"))?;
        if belongs_to_transport(&header_name) {
            return Err(wrong("is set by the client itself, which knows how it sends a request"));
        }
        if header_name == header::PROXY_AUTHORIZATION {
            return Err(wrong(
                "would reach the server; use proxy=\"http://user:password@host:port\"",
            ));
        }
        let value = HeaderValue::from_str(text);
        let value = value.map_err(|_| wrong("has characters that no header may carry"))?;
        let is_host = || RequestHost::parse(text).is_ok_and(|host| !host.host.is_empty());
        if header_name == header::HOST && !is_host() {
            return Err(wrong("must be a host, or a host and a port"));
        }
        checked.insert(header_name, value);
    }
    Ok(checked)
}

/// Whether a header says how a message is sent, and so belongs to the transport alone: one of the
/// connection, of framing, or `Expect`, whose answer nobody would wait for.
fn belongs_to_transport(name: &HeaderName) -> bool {
    let is_known = [header::CONTENT_LENGTH, header::EXPECT, header::TRAILER].contains(name);
    is_known || is_hop_by_hop(name.as_str())
}

/// The text of an option as the value of a header.
pub(super) fn header_value(option: &'static str, text: &str) -> Result<HeaderValue, ConfigError> {
    // The text may be a secret: the message does not show it.
    HeaderValue::from_str(text)
        .map_err(|_| ConfigError::new(option, "holds characters that no header may carry"))
}

/// Headers as they are sent.
pub(super) fn to_bytes(headers: &HeaderMap) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    HeadWriter::resume(&mut bytes).fields(headers);
    bytes.into()
}
