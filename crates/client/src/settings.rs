//! Options that were checked, in the form that calls need.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap};

use ginnel_api::Secret;
use ginnel_http1::reuse::ReuseBan;

use super::base_url::{self, BaseUrl};
use super::config_error::ConfigError;
use super::headers::{self, SERVICE_VERSION, checked_headers, default_headers, header_value};
use super::options::{Api, ClientCert, ClientOptions, OptionChanges};
use super::proxy::choose_proxy;
use super::query::{self, QueryParameter};
use super::rate::RequestRateLimit;
use super::redaction::RedactedValues;
use super::tls::Roots;
use ginnel_net::proxy::Proxy;

const CLIENT_CERT_VARIABLE: &str = "GINNEL_CLIENT_CERT";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_DEADLINE: Duration = Duration::from_secs(90);
const DEFAULT_MAX_RETRIES: u32 = 2;
const DEFAULT_MAX_CONNECTIONS: usize = 100;

/// Options that were checked, in the form that calls need. Clones share what they have in common,
/// so that a client with other options costs no more than what it changes.
#[derive(Clone)]
pub struct ClientSettings {
    /// Which API is called.
    pub api: Api,
    /// Where requests go.
    pub origin: Arc<BaseUrl>,
    /// Limit of one attempt.
    pub timeout: Option<Duration>,
    /// Limit of one call.
    pub deadline: Option<Duration>,
    /// How many times to retry a failed attempt.
    pub max_retries: u32,
    /// Our own headers of a request without a body.
    own_headers: Arc<HeaderMap>,
    /// The headers that the user added.
    added_headers: Arc<HeaderMap>,
    /// All headers, as they are sent.
    head: Arc<[u8]>,
    /// What is appended to the query of each request.
    query: Arc<[QueryParameter]>,
    /// What of the headers no error shows.
    pub(super) credentials: RedactedValues,
    /// The proxy on the way, if any.
    pub(super) proxy: Option<Proxy>,
    /// Whom to trust.
    pub(super) roots: Roots,
    /// Says when connections must not carry another request.
    pub(super) reuse_ban: ReuseBan,
    /// How many connections there are at most.
    pub(super) max_connections: usize,
    /// How many requests are sent at most in a time.
    pub(super) rate_limit: Option<Arc<RequestRateLimit>>,
    /// What stands before the target of each request.
    target_prefix: Arc<str>,
    /// The last characters of the key, to tell keys apart.
    hint: Arc<str>,
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest holds secrets.
        f.debug_struct("Settings").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl ClientSettings {
    /// Completes options from the environment and checks them.
    pub fn new(options: ClientOptions) -> Result<Self, ConfigError> {
        let origin = base_url::resolve_base_url(&options)?;
        let proxy = choose_proxy(&options, &origin)?;
        let bundle = options.ca_bundle.clone().or_else(|| environment_path("GINNEL_CA_BUNDLE"));
        let roots = match &options.client_cert {
            Some(files) => Roots::from_files(bundle.as_ref(), Some(("client_cert", files)))?,
            None => {
                let files = environment_path(CLIENT_CERT_VARIABLE).map(ClientCert::from);
                let files = files.as_ref().map(|files| (CLIENT_CERT_VARIABLE, files));
                Roots::from_files(bundle.as_ref(), files)?
            }
        };
        let api_key = api_key(&options)?;
        let mut own_headers = default_headers(&options, &origin, api_key.as_ref())?;
        let absolute =
            proxy.as_ref().filter(|proxy| proxy.uses_absolute_form(&origin.proxy_target()));
        if let Some(authorization) = absolute.and_then(Proxy::authorization) {
            own_headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let target_prefix = match absolute {
            Some(_) => origin.to_string(),
            None => origin.path_prefix().to_owned(),
        };
        let mut settings = Self {
            api: options.api,
            timeout: nonzero_limit(options.timeout.unwrap_or(DEFAULT_TIMEOUT)),
            deadline: nonzero_limit(options.deadline.unwrap_or(DEFAULT_DEADLINE)),
            max_retries: options.max_retries.unwrap_or(DEFAULT_MAX_RETRIES),
            credentials: RedactedValues::default(),
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
            hint: api_key.map(|key| mask_key(&key)).unwrap_or_default().into(),
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
        settings.timeout = changes.timeout.map_or(self.timeout, nonzero_limit);
        settings.deadline = changes.deadline.map_or(self.deadline, nonzero_limit);
        settings.max_retries = changes.max_retries.unwrap_or(self.max_retries);
        if let Some(query) = changes.query {
            settings.query = query.iter().map(QueryParameter::from_pair).collect();
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
            let version = header_value("service_version", &text)?;
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
        self.credentials = RedactedValues::from_headers(&headers);
        self.head = headers::to_bytes(&headers);
    }

    /// The end of the key, such as `…3kZq`; empty without a key.
    pub fn key_hint(&self) -> &str {
        &self.hint
    }

    /// A text that may be shown: without the key and other credentials of the headers.
    pub fn redact_text(&self, text: &str) -> String {
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
        query::append_parameters(&self.query, target);
    }

    /// The headers of a request without a body, as they are sent.
    pub(super) fn header_lines(&self) -> &[u8] {
        &self.head
    }

    /// What stands before the target of each request.
    pub(super) fn target_prefix(&self) -> &str {
        &self.target_prefix
    }
}

fn api_key(options: &ClientOptions) -> Result<Option<Secret>, ConfigError> {
    if options.api == Api::Agent {
        return Ok(None);
    }
    match options
        .api_key
        .clone()
        .or_else(|| environment_variable("GINNEL_API_KEY").map(|key| Secret(key.trim().to_owned())))
    {
        Some(key) if key.0.trim().is_empty() => Err(ConfigError::new("api_key", "is empty")),
        Some(key) => Ok(Some(Secret(key.0.trim().to_owned()))),
        None => Err(ConfigError::new("api_key", "is missing; pass it or set GINNEL_API_KEY")),
    }
}

fn max_connections(value: Option<usize>) -> Result<usize, ConfigError> {
    match value {
        Some(0) => Err(ConfigError::invalid_value("max_connections", "0", "must be 1 or more")),
        value => Ok(value.unwrap_or(DEFAULT_MAX_CONNECTIONS)),
    }
}

fn rate_limit(value: Option<&str>) -> Result<Option<Arc<RequestRateLimit>>, ConfigError> {
    let read = |text: &str| {
        let wrong =
            |problem| ConfigError::invalid_value("rate_limit", format!("{text:?}"), problem);
        text.parse().map(Arc::new).map_err(wrong)
    };
    value.map(read).transpose()
}

fn nonzero_limit(duration: Duration) -> Option<Duration> {
    Some(duration).filter(|limit| !limit.is_zero())
}

fn mask_key(key: &Secret) -> String {
    let characters: Vec<char> = key.0.chars().collect();
    // A short key is no token of ours, and four of its characters would be too much of it.
    match characters.len() {
        ..16 => "…".to_owned(),
        length => format!("…{}", characters[length - 4..].iter().collect::<String>()),
    }
}

fn environment_variable(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn environment_path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
