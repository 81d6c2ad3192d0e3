//! What a user may set.

use std::path::PathBuf;
use std::time::Duration;

use ginnel_api::Secret;

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
pub struct ClientOptions {
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
    /// How many times to retry a failed attempt, 2 by default.
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
    /// The proxy to use, instead of one from the environment: `http`, `https`, `socks5` (names are resolved
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
    /// As [`ClientOptions::timeout`].
    pub timeout: Option<Duration>,
    /// As [`ClientOptions::deadline`].
    pub deadline: Option<Duration>,
    /// As [`ClientOptions::max_retries`].
    pub max_retries: Option<u32>,
    /// As [`ClientOptions::headers`], in place of all of those.
    pub headers: Option<Vec<(String, String)>>,
    /// As [`ClientOptions::service_version`].
    pub service_version: Option<String>,
    /// Parameters to append to the query of each request, in place of those before. A request that
    /// has one of a name already keeps its own.
    pub query: Option<Vec<(String, String)>>,
}
