//! The address that a client calls.

use std::fmt;

use ginnel_api::mask;
use ginnel_base::address::{AddressError, Host, WebUrl};
use ginnel_net::proxy::ProxyTarget;

use super::config_error::ConfigError;
use super::options::{Api, ClientOptions};

/// Scheme, host, port and path in front of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    url: WebUrl,
    /// The host without brackets.
    host: String,
    /// The path of the base address, without a slash at its end.
    prefix: String,
}

impl BaseUrl {
    /// Reads a base address.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong =
            |problem: &str| ConfigError::invalid_value("base_url", display_url(text), problem);
        let url = WebUrl::parse(text.trim()).map_err(|problem| match problem {
            AddressError::Scheme(_) => wrong("must start with http:// or https://"),
            AddressError::Login => wrong("must not carry a user or a password"),
            problem => wrong(&problem.to_string()),
        })?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("must not carry a query or a fragment"));
        }
        let prefix = url.path().trim_end_matches('/').to_owned();
        let host = url.host().unbracketed();
        Ok(Self { url, host, prefix })
    }

    /// The address with this path, where it has none of its own.
    fn with_usual_path(self, path: &str) -> Self {
        let prefix = if self.prefix.is_empty() { path.to_owned() } else { self.prefix };
        Self { prefix, ..self }
    }

    /// The path of the base address, without a slash at its end.
    pub(super) fn path_prefix(&self) -> &str {
        &self.prefix
    }

    /// True for https.
    pub fn is_tls(&self) -> bool {
        self.url.is_https()
    }

    /// True when requests stay on this machine.
    pub fn is_loopback(&self) -> bool {
        self.url.host().is_loopback()
    }

    /// The host.
    fn host_address(&self) -> &Host {
        self.url.host()
    }

    /// The place that a proxy has to lead to.
    pub(super) fn proxy_target(&self) -> ProxyTarget<'_> {
        ProxyTarget { host: self.host_address(), port: self.port(), is_tls: self.is_tls() }
    }

    /// The host without brackets.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The port, also where the address leaves it out.
    pub(super) fn port(&self) -> u16 {
        self.url.port()
    }

    /// The whole address of a request.
    pub fn url_of(&self, target: &str) -> String {
        [&self.url.authority().to_string(), &self.prefix, target].concat()
    }

    /// The opposite of [`BaseUrl::url_of`]; `None` for addresses elsewhere. An address without a host
    /// is resolved against that of the request whose answer gave it (RFC 3986 §5.2).
    pub(super) fn target_of(&self, address: &str, request: &str) -> Option<String> {
        let url = WebUrl::parse(&self.url_of(request)).ok()?.join(address).ok()?;
        let ours = url.authority() == self.url.authority() && !url.has_login();
        let path = url.path().strip_prefix(&self.prefix).filter(|path| path.starts_with('/'))?;
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        ours.then(|| format!("{path}{query}"))
    }

    pub(super) fn host_header(&self) -> String {
        self.url.authority().host_header()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.url.authority(), self.prefix)
    }
}

/// The address of options, if the key may be sent to it.
pub(super) fn resolve_base_url(options: &ClientOptions) -> Result<BaseUrl, ConfigError> {
    let origin = configured_base_url(options)?;
    if !origin.is_tls() && !origin.is_loopback() && !options.allow_http {
        let problem = "is unencrypted and not on this machine; use https, or allow HTTP \
                       (allow_http=True, --allow-http)";
        return Err(ConfigError::invalid_value("base_url", quote_text(&origin), problem));
    }
    Ok(origin)
}

/// The address of options, else that of the environment, else the usual one.
fn configured_base_url(options: &ClientOptions) -> Result<BaseUrl, ConfigError> {
    let (variable, default) = match options.api {
        Api::Remote => ("GINNEL_BASE_URL", None),
        Api::Agent => ("GINNEL_AGENT_URL", Some("http://127.0.0.1:4040/api")),
    };
    let address = options
        .base_url
        .clone()
        .or_else(|| environment_variable(variable))
        .or(default.map(str::to_owned));
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
fn display_url(address: &str) -> String {
    quote_text(&mask::text(&mask::login(address)))
}

fn quote_text(text: &impl ToString) -> String {
    format!("{:?}", text.to_string())
}

fn environment_variable(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
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
