//! The address that a client calls.

use std::fmt;

use url::Url;

use super::config_error::ConfigError;
use super::options::{Api, ClientOptions};
use super::redaction::mask_login;
use crate::api::mask;
use crate::base::address::Authority;

/// Scheme, host, port and path in front of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    url: Url,
    /// The host without brackets.
    host: String,
    is_loopback: bool,
    /// The path of the base address, without a slash at its end.
    prefix: String,
}

impl BaseUrl {
    /// Reads a base address.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |problem: &str| ConfigError::invalid("base_url", shown(text), problem);
        let url =
            Url::parse(text).map_err(|error| wrong(&format!("is not an address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("must start with http:// or https://"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("names no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("must not carry a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("must not carry a query or a fragment"));
        }
        // The parser of URLs reads numbers in other notations as addresses.
        let (authority, _) =
            Authority::split(text.trim()).map_err(|problem| wrong(&problem.to_string()))?;
        let prefix = url.path().trim_end_matches('/').to_owned();
        let host = authority.host.unbracketed();
        Ok(Self { url, host, is_loopback: authority.host.is_loopback(), prefix })
    }

    /// The address with this path, where it has none of its own.
    fn with_usual_path(self, path: &str) -> Self {
        let prefix = if self.prefix.is_empty() { path.to_owned() } else { self.prefix };
        Self { prefix, ..self }
    }

    /// The path of the base address, without a slash at its end.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// True for https.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// True when requests stay on this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The host without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The port, also where the address leaves it out.
    pub(super) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// The whole address of a request.
    pub fn url_of(&self, target: &str) -> String {
        let origin = self.url.origin().ascii_serialization();
        [&origin, &self.prefix, target].concat()
    }

    /// The opposite of [`BaseUrl::url_of`]; `None` for addresses elsewhere. An address without a host
    /// is resolved against that of the request whose answer gave it (RFC 3986 §5.2).
    pub(super) fn target_of(&self, address: &str, request: &str) -> Option<String> {
        let url = match Url::parse(address) {
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                Url::parse(&self.url_of(request)).ok()?.join(address).ok()?
            }
            parsed => parsed.ok()?,
        };
        let ours = url.origin() == self.url.origin() && url.username().is_empty();
        let path = url.path().strip_prefix(&self.prefix).filter(|path| path.starts_with('/'))?;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        ours.then(|| format!("{path}{query}"))
    }

    pub(super) fn host_header(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.url.origin().ascii_serialization(), self.prefix)
    }
}

/// The address of options, if the key may be sent to it.
pub(super) fn checked(options: &ClientOptions) -> Result<BaseUrl, ConfigError> {
    let origin = configured(options)?;
    if !origin.is_tls() && !origin.is_loopback() && !options.allow_http {
        let problem = "is unencrypted and not on this machine; use https, or allow HTTP \
                       (allow_http=True, --allow-http)";
        return Err(ConfigError::invalid("base_url", quoted(&origin), problem));
    }
    Ok(origin)
}

/// The address of options, else that of the environment, else the usual one.
fn configured(options: &ClientOptions) -> Result<BaseUrl, ConfigError> {
    let (variable, default) = match options.api {
        Api::Remote => ("GINNEL_BASE_URL", None),
        Api::Agent => ("GINNEL_AGENT_URL", Some("http://127.0.0.1:4040/api")),
    };
    let address =
        options.base_url.clone().or_else(|| environment(variable)).or(default.map(str::to_owned));
    match address {
        Some(address) => {
            let origin = BaseUrl::parse(&address)?;
            Ok(if options.api == Api::Agent { origin.with_usual_path("/api") } else { origin })
        }
        None => Err(ConfigError::new(
            "base_url",
            format!("is missing; pass it (base_url=…, --base-url) or set {variable}"),
        )),
    }
}

/// An address as errors show it.
fn shown(address: &str) -> String {
    quoted(&mask::text(&mask_login(address)))
}

fn quoted(text: &impl ToString) -> String {
    format!("{:?}", text.to_string())
}

fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn target(address: &str) -> Option<String> {
        BaseUrl::parse("https://api.test/v2").unwrap().target_of(address, "/a/keys?limit=2")
    }

    #[test]
    fn an_address_is_resolved_against_that_of_its_request() {
        for (address, expected) in [
            ("https://api.test/v2/a/keys?before_id=1", "/a/keys?before_id=1"),
            ("https://api.test:443/v2/x", "/x"),
            ("/v2/a/keys?before_id=1", "/a/keys?before_id=1"),
            ("//api.test/v2/x", "/x"),
            ("?before_id=1", "/a/keys?before_id=1"),
            ("keys?before_id=1", "/a/keys?before_id=1"),
            ("../keys", "/keys"),
            ("more#part", "/a/more"),
        ] {
            assert_eq!(target(address).as_deref(), Some(expected), "{address}");
        }
    }

    #[test]
    fn an_address_elsewhere_is_none_of_ours() {
        for address in [
            "https://api.test/x",
            "https://api.test/v23/x",
            "http://api.test/v2/x",
            "https://api.test:444/v2/x",
            "https://user@api.test/v2/x",
            "//elsewhere.test/v2/x",
            "/x",
            "../../x",
            "https://",
            "https://[",
            "data:x",
        ] {
            assert_eq!(target(address), None, "{address}");
        }
    }
}
