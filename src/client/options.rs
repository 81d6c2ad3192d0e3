//! What a user may set, and what becomes of it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use url::Url;

use super::ConfigError;
use super::proxy::Proxy;
use super::rate::RateLimit;
use super::redaction::{Credentials, mask_login};
use super::tls::Roots;
use crate::api::{self, Secret, mask};
use crate::coding::ACCEPT_ENCODING;
use crate::reuse::ReuseBan;

/// Which of the two APIs a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Api {
    /// The management API of the service.
    #[default]
    Remote,
    /// The local API of a running agent.
    Agent,
}

/// What a user may set. What is left out comes from the environment, then from the defaults.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which API; decides on defaults.
    pub api: Api,
    /// The key of the management API; else `GINNEL_API_KEY`.
    pub api_key: Option<Secret>,
    /// Where the API is served; else `GINNEL_BASE_URL`, or `GINNEL_AGENT_URL` for an agent, whose
    /// path `/api` may be left out.
    pub base_url: Option<String>,
    /// How long one attempt may take, 10 s by default; zero means for ever.
    pub timeout: Option<Duration>,
    /// How long a call may take with retries and sleeps, 90 s by default; zero means for ever.
    pub deadline: Option<Duration>,
    /// How many times a failed attempt is repeated, 2 by default.
    pub max_retries: Option<u32>,
    /// The version of the API to ask for, `2` by default.
    pub service_version: Option<String>,
    /// Headers to add to each request.
    pub headers: Vec<(String, String)>,
    /// Certificates to trust instead of the system's, a PEM file; else `GINNEL_CA_BUNDLE`.
    pub ca_bundle: Option<PathBuf>,
    /// A certificate to show to servers that ask for one; else `GINNEL_CLIENT_CERT`, a file with the
    /// key. No proxy sees it.
    pub client_cert: Option<ClientCert>,
    /// A proxy to use, whatever the environment says: `http`, `https`, `socks5` (names are resolved
    /// here) or `socks5h://[user:password@]host[:port]`.
    pub proxy: Option<String>,
    /// True to ignore the environment's proxies.
    pub ignore_environment: bool,
    /// True to call other machines over unencrypted HTTP.
    pub allow_http: bool,
    /// What to put in front of our own `User-Agent`, such as `deploy/1.2`.
    pub app: Option<String>,
    /// How many connections there are at most, 100 by default.
    pub max_connections: Option<usize>,
    /// How many requests are sent at most in a time, such as `120/60s`; no limit by default.
    pub rate_limit: Option<String>,
}

/// The files of a certificate and its key, in PEM; both may be in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCert {
    /// The certificate, and those between it and its authority.
    pub chain: PathBuf,
    /// The key, in PKCS #8, PKCS #1 or SEC 1, not encrypted.
    pub key: PathBuf,
}

impl From<PathBuf> for ClientCert {
    fn from(path: PathBuf) -> Self {
        Self { chain: path.clone(), key: path }
    }
}

/// Options that a client changes for some of its calls. What is left out stays as it is.
#[derive(Debug, Clone, Default)]
pub struct OptionChanges {
    /// As [`Options::timeout`].
    pub timeout: Option<Duration>,
    /// As [`Options::deadline`].
    pub deadline: Option<Duration>,
    /// As [`Options::max_retries`].
    pub max_retries: Option<u32>,
    /// As [`Options::headers`], in place of all of those.
    pub headers: Option<Vec<(String, String)>>,
    /// As [`Options::service_version`].
    pub service_version: Option<String>,
    /// Parameters to append to the query of each request, in place of those before. A request that
    /// has one of a name already keeps its own.
    pub query: Option<Vec<(String, String)>>,
}

/// Options that were found good, in the form that calls need. Clones share what they have in common,
/// so that a client with other options costs no more than what it changes.
#[derive(Clone)]
pub struct Settings {
    /// Which API is called.
    pub api: Api,
    /// Where requests go.
    pub origin: Arc<Origin>,
    /// Limit of one attempt.
    pub timeout: Option<Duration>,
    /// Limit of one call.
    pub deadline: Option<Duration>,
    /// How many times a failed attempt is repeated.
    pub max_retries: u32,
    /// Our own headers of a request without a body.
    own_headers: Arc<HeaderMap>,
    /// The headers that the user added.
    added_headers: Arc<HeaderMap>,
    /// All headers, as they are sent.
    head: Arc<[u8]>,
    /// What is appended to the query of each request.
    query: Arc<[Parameter]>,
    /// What of the headers no error shows.
    pub(super) credentials: Credentials,
    /// The proxy on the way, if any.
    pub(super) proxy: Option<Proxy>,
    /// Whom to trust.
    pub(super) roots: Roots,
    /// Says when connections must not carry another request.
    pub(super) reuse_ban: ReuseBan,
    /// How many connections there are at most.
    pub(super) max_connections: usize,
    /// How many requests are sent at most in a time.
    pub(super) rate_limit: Option<Arc<RateLimit>>,
    /// What stands before the target of each request.
    target_prefix: Arc<str>,
    /// The last characters of the key, to tell keys apart.
    hint: Arc<str>,
}

/// A parameter of a query, encoded.
struct Parameter {
    name: String,
    value: String,
}

/// Scheme, host, port and path in front of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    url: Url,
    /// The path of the base address, without a slash at its end.
    prefix: String,
}

const CLIENT_CERT_VARIABLE: &str = "GINNEL_CLIENT_CERT";
const TIMEOUT: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(90);
const MAX_RETRIES: u32 = 2;
const MAX_CONNECTIONS: usize = 100;
/// Headers that say how a message is sent, and so belong to the transport alone: those of one connection
/// (RFC 9110, section 7.6.1), of its framing, and `Expect`, whose answer nobody would wait for.
const TRANSPORT_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const SERVICE_VERSION: HeaderName = HeaderName::from_static("service-version");
const USER_AGENT: &str = concat!("ginnel/", env!("CARGO_PKG_VERSION"));

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest holds secrets.
        f.debug_struct("Settings").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Settings {
    /// Completes options from the environment and checks them.
    pub fn new(options: Options) -> Result<Self, ConfigError> {
        let origin = usable_origin(&options)?;
        let proxy = Proxy::choose(&options, &origin)?;
        let bundle = options.ca_bundle.clone().or_else(|| path("GINNEL_CA_BUNDLE"));
        let roots = match &options.client_cert {
            Some(files) => Roots::choose(bundle.as_ref(), Some(("client_cert", files)))?,
            None => {
                let files = path(CLIENT_CERT_VARIABLE).map(ClientCert::from);
                let files = files.as_ref().map(|files| (CLIENT_CERT_VARIABLE, files));
                Roots::choose(bundle.as_ref(), files)?
            }
        };
        let api_key = api_key(&options)?;
        let mut own_headers = own_headers(&options, &origin, api_key.as_ref())?;
        let absolute = proxy.as_ref().filter(|proxy| proxy.wants_absolute_form(&origin));
        if let Some(authorization) = absolute.and_then(Proxy::authorization) {
            own_headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let target_prefix = match absolute {
            Some(_) => origin.to_string(),
            None => origin.prefix.clone(),
        };
        let mut settings = Self {
            api: options.api,
            timeout: limit(options.timeout.unwrap_or(TIMEOUT)),
            deadline: limit(options.deadline.unwrap_or(DEADLINE)),
            max_retries: options.max_retries.unwrap_or(MAX_RETRIES),
            credentials: Credentials::default(),
            head: Arc::default(),
            own_headers: own_headers.into(),
            added_headers: checked_headers(&options.headers)?.into(),
            query: Arc::default(),
            target_prefix: target_prefix.into(),
            proxy,
            roots,
            reuse_ban: ReuseBan::default(),
            max_connections: max_connections(options.max_connections)?,
            rate_limit: rate_limit(options.rate_limit.as_deref())?,
            hint: api_key.map(|key| hint(&key)).unwrap_or_default().into(),
            origin: origin.into(),
        };
        settings.write_head();
        Ok(settings)
    }

    /// These settings with changes. What connections depend on stays as it is, even where the
    /// environment or a file has changed.
    ///
    /// # Errors
    /// When a changed option is unusable.
    pub(super) fn with_options(&self, changes: OptionChanges) -> Result<Self, ConfigError> {
        let mut settings = self.clone();
        settings.timeout = changes.timeout.map_or(self.timeout, limit);
        settings.deadline = changes.deadline.map_or(self.deadline, limit);
        settings.max_retries = changes.max_retries.unwrap_or(self.max_retries);
        if let Some(query) = changes.query {
            settings.query = query.iter().map(Parameter::encode).collect();
        }
        if changes.headers.is_some() || changes.service_version.is_some() {
            settings.change_headers(changes.headers, changes.service_version)?;
        }
        Ok(settings)
    }

    fn change_headers(
        &mut self,
        added: Option<Vec<(String, String)>>,
        service_version: Option<String>,
    ) -> Result<(), ConfigError> {
        if let Some(added) = added {
            self.added_headers = checked_headers(&added)?.into();
        }
        if let Some(text) =
            service_version.filter(|_| self.own_headers.contains_key(SERVICE_VERSION))
        {
            let version = value("service_version", &text)?;
            Arc::make_mut(&mut self.own_headers).insert(SERVICE_VERSION, version);
        }
        self.write_head();
        Ok(())
    }

    /// Writes the headers anew as they are sent.
    fn write_head(&mut self) {
        let mut headers = HeaderMap::clone(&self.own_headers);
        for (name, value) in &*self.added_headers {
            headers.insert(name, value.clone());
        }
        self.credentials = Credentials::of(&headers);
        self.head = block(&headers);
    }

    /// The end of the key, such as `…3kZq`; empty without a key.
    pub fn key_hint(&self) -> &str {
        &self.hint
    }

    /// A text that may be shown: without the key and other credentials of the headers.
    pub fn redacted(&self, text: &str) -> String {
        self.credentials.mask_text(text)
    }

    /// Adds headers, in place of those of their names.
    pub(super) fn add_headers(&mut self, more: &[(String, String)]) -> Result<(), ConfigError> {
        Arc::make_mut(&mut self.added_headers).extend(checked_headers(more)?);
        self.write_head();
        Ok(())
    }

    /// Appends what belongs in the query of each request, but for names that are there already.
    pub(super) fn append_query(&self, target: &mut String) {
        if self.query.is_empty() {
            return;
        }
        let before = target.clone();
        let query = before.split_once('?').map(|(_, query)| query);
        let mut separator = if query.is_some() { '&' } else { '?' };
        let known = |parameter: &&Parameter| query.is_some_and(|query| parameter.is_in(query));
        for Parameter { name, value } in self.query.iter().filter(|parameter| !known(parameter)) {
            target.push(separator);
            separator = '&';
            target.extend([name, "=", value]);
        }
    }

    /// The headers of a request without a body, as they are sent.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// What stands before the target of each request.
    pub(super) fn target_prefix(&self) -> &str {
        &self.target_prefix
    }
}

impl Parameter {
    fn encode((name, value): &(String, String)) -> Self {
        Self { name: api::encode_component(name), value: api::encode_component(value) }
    }

    /// Whether a query has one of this name.
    fn is_in(&self, query: &str) -> bool {
        query.split('&').any(|pair| pair.split('=').next() == Some(&self.name))
    }
}

impl Origin {
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
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { url, prefix })
    }

    /// The address with this path, where it has none of its own.
    fn with_usual_path(self, path: &str) -> Self {
        let prefix = if self.prefix.is_empty() { path.to_owned() } else { self.prefix };
        Self { prefix, ..self }
    }

    /// True for https.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// True when requests stay on this machine.
    pub fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }

    /// The host without brackets.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
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

    /// The opposite of [`Origin::url_of`]; `None` for addresses elsewhere. An address without a host
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

    fn host_header(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.url.origin().ascii_serialization(), self.prefix)
    }
}

fn origin(options: &Options) -> Result<Origin, ConfigError> {
    let (variable, default) = match options.api {
        Api::Remote => ("GINNEL_BASE_URL", None),
        Api::Agent => ("GINNEL_AGENT_URL", Some("http://127.0.0.1:4040/api")),
    };
    let given = options.base_url.clone().or_else(|| text(variable)).or(default.map(str::to_owned));
    match given {
        Some(address) => {
            let origin = Origin::parse(&address)?;
            Ok(if options.api == Api::Agent { origin.with_usual_path("/api") } else { origin })
        }
        None => Err(ConfigError::new("base_url", format!("is missing; pass it or set {variable}"))),
    }
}

fn api_key(options: &Options) -> Result<Option<Secret>, ConfigError> {
    if options.api == Api::Agent {
        return Ok(None);
    }
    match options.api_key.clone().or_else(|| text("GINNEL_API_KEY").map(Secret)) {
        Some(key) if key.0.trim().is_empty() => Err(ConfigError::new("api_key", "is empty")),
        Some(key) => Ok(Some(Secret(key.0.trim().to_owned()))),
        None => Err(ConfigError::new("api_key", "is missing; pass it or set GINNEL_API_KEY")),
    }
}

/// The origin of options, if the key may be sent to it.
fn usable_origin(options: &Options) -> Result<Origin, ConfigError> {
    let origin = origin(options)?;
    if !origin.is_tls() && !origin.is_loopback() && !options.allow_http {
        let problem = "is unencrypted and not on this machine; use https, or allow_http=True";
        return Err(ConfigError::invalid("base_url", quoted(&origin), problem));
    }
    Ok(origin)
}

fn own_headers(
    options: &Options,
    origin: &Origin,
    api_key: Option<&Secret>,
) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, value("base_url", &origin.host_header())?);
    if let Some(key) = api_key {
        let mut bearer = value("api_key", &format!("Bearer {}", key.0))?;
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
        let version = options.service_version.as_deref().unwrap_or("2");
        headers.insert(SERVICE_VERSION, value("service_version", version)?);
    }
    let agent = match &options.app {
        Some(app) => format!("{app} {USER_AGENT}"),
        None => USER_AGENT.to_owned(),
    };
    headers.insert(header::USER_AGENT, value("app", &agent)?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    // Not worth its time where the bytes never leave the machine.
    if !origin.is_loopback() {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    }
    Ok(headers)
}

/// Headers of the user.
fn checked_headers(given: &[(String, String)]) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for (name, text) in given {
        let wrong = |problem: &str| ConfigError::new("headers", format!("{name:?} {problem}"));
        let known = HeaderName::try_from(name.as_str())
            .map_err(|_| wrong("is not the name of a header"))?;
        if TRANSPORT_HEADERS.contains(&known.as_str()) {
            return Err(wrong("is set by the client itself, which knows how it sends a request"));
        }
        if known == header::PROXY_AUTHORIZATION {
            return Err(wrong(
                "would reach the server; use proxy=\"http://user:password@host:port\"",
            ));
        }
        let value = HeaderValue::from_str(text);
        let value = value.map_err(|_| wrong("has characters that no header may carry"))?;
        if known == header::HOST && !is_authority(text) {
            return Err(wrong("must be a host, or a host and a port"));
        }
        headers.insert(known, value);
    }
    Ok(headers)
}

/// Whether a text is a host with or without a port.
fn is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    match authority.port_u16() {
        Some(port) => text == format!("{}:{port}", authority.host()),
        None => text == authority.host(),
    }
}

/// An address as errors show it.
fn shown(address: &str) -> String {
    quoted(&mask::text(&mask_login(address)))
}

fn quoted(text: &impl ToString) -> String {
    format!("{:?}", text.to_string())
}

fn value(option: &'static str, text: &str) -> Result<HeaderValue, ConfigError> {
    // The text may be a secret: the message does not show it.
    HeaderValue::from_str(text)
        .map_err(|_| ConfigError::new(option, "holds characters that no header may carry"))
}

/// Headers as they are sent.
fn block(headers: &HeaderMap) -> Arc<[u8]> {
    let mut block = Vec::new();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            block.extend_from_slice(part);
        }
    }
    block.into()
}

fn max_connections(given: Option<usize>) -> Result<usize, ConfigError> {
    match given {
        Some(0) => Err(ConfigError::invalid("max_connections", "0", "must be 1 or more")),
        given => Ok(given.unwrap_or(MAX_CONNECTIONS)),
    }
}

fn rate_limit(given: Option<&str>) -> Result<Option<Arc<RateLimit>>, ConfigError> {
    let read = |text: &str| {
        let wrong = |problem| ConfigError::invalid("rate_limit", format!("{text:?}"), problem);
        text.parse().map(Arc::new).map_err(wrong)
    };
    given.map(read).transpose()
}

fn limit(lasts: Duration) -> Option<Duration> {
    Some(lasts).filter(|limit| !limit.is_zero())
}

fn hint(key: &Secret) -> String {
    let characters: Vec<char> = key.0.chars().collect();
    // A short key is no token of ours, and four of its characters would be too much of it.
    match characters.len() {
        ..16 => "…".to_owned(),
        length => format!("…{}", characters[length - 4..].iter().collect::<String>()),
    }
}

fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn target(address: &str) -> Option<String> {
        Origin::parse("https://api.test/v2").unwrap().target_of(address, "/a/keys?limit=2")
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
