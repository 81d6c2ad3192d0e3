//! The embedded service and the command, as Python sees them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;

use ginnel_api::{Origin, Secret, mask};
use ginnel_base::address::{self, Authority, HostPort};
use ginnel_base::thread_runtime::ThreadRuntime;
use ginnel_gateway::GatewaySettings;
use ginnel_policy::path::AmbiguousPaths;
use ginnel_service::config::{load_embedded, replace_settings};
use ginnel_service::{
    self as service, AgentSettings, CertificateSettings, DomainSettings, ManagementSettings,
    MonitoringSettings, Options, StoreSettings, TokenSettings, TrustedProxies,
};
use ginnel_store::PostgresOptions;

use super::traffic::TrafficEvents;
use super::{error, shutdown};

/// A service with the threads that serve it.
#[pyclass(frozen, module = "ginnel._native", name = "Service")]
pub(super) struct PyService {
    running: Mutex<Option<RunningService>>,
    process: u32,
    #[pyo3(get)]
    url: String,
    #[pyo3(get)]
    public_url: String,
    #[pyo3(get)]
    api_key: Option<String>,
    #[pyo3(get)]
    authtoken: Option<String>,
    /// Where agents connect to, `host:port`.
    #[pyo3(get)]
    agent_addr: Option<String>,
    /// Where public HTTP and HTTPS are listened for, `host:port`.
    #[pyo3(get)]
    http_address: Option<String>,
    #[pyo3(get)]
    https_address: Option<String>,
    /// Where it is watched, `host:port`.
    #[pyo3(get)]
    admin_addr: Option<String>,
    /// The file of the database; none where there is no file.
    #[pyo3(get)]
    path: Option<PathBuf>,
    /// Whether the data end with the service.
    #[pyo3(get)]
    in_memory: bool,
    #[pyo3(get)]
    ca_pem: String,
    #[pyo3(get)]
    ca_path: Option<PathBuf>,
}

/// The options as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ServiceArguments {
    path: Option<PathBuf>,
    store: Option<String>,
    host: String,
    port: u16,
    api_key: Option<String>,
    admin_key_file: Option<PathBuf>,
    authtoken: Option<String>,
    public_url: Option<String>,
    rate_limit: Option<(u32, f64)>,
    agent_port: Option<u16>,
    edge_host: String,
    http_port: Option<u16>,
    https_port: Option<u16>,
    base_domain: Option<String>,
    tls_endpoints: bool,
    certificate: Option<(PathBuf, PathBuf)>,
    reserved_domains_only: bool,
    trusted_proxies: Vec<String>,
    ambiguous_paths: String,
    max_connections: Option<i64>,
    max_connections_per_address: Option<i64>,
    max_api_connections: Option<i64>,
    max_agent_connections: Option<i64>,
    heartbeat: (f64, f64),
    reserve: f64,
    admin_addr: Option<String>,
    kept_calls: usize,
    /// The seed, and microseconds since the Unix epoch.
    origin: Option<(u64, u64)>,
    /// A configuration file.
    config: Option<PathBuf>,
    /// More settings, as JSON.
    settings: Option<String>,
    /// Which of the others the caller has passed; they win over file and settings.
    passed: Vec<String>,
}

/// The arguments that are no settings of their own.
const NO_SETTINGS: [&str; 4] = ["config", "settings", "seed", "begin"];

impl ServiceArguments {
    /// The options: those of arguments, and where there are a file or settings, what these say of others.
    fn into_options(mut self) -> Result<Options, String> {
        let (file, settings) = (self.config.take(), self.settings.take());
        if file.is_none() && settings.is_none() {
            return self.into_own_options();
        }
        let settings = settings.map_or(Ok(Value::Null), |text| serde_json::from_str(&text));
        let settings = settings.map_err(|problem| format!("settings: {problem}"))?;
        let passed = std::mem::take(&mut self.passed);
        let mut config =
            load_embedded(file.as_deref(), settings).map_err(|problems| problems.join("\n"))?;
        let own = self.into_own_options()?;
        let is_passed = |name: &str| passed.iter().any(|it| it == name);
        if own.store.path.is_some() && !is_passed("store") {
            config.options.store.server = None;
        }
        if own.store.server.is_some() && !is_passed("path") {
            config.options.store.path = None;
        }
        let (kept_calls, origin) = (own.kept_calls, own.origin.clone());
        let keys: Vec<_> = passed.iter().flat_map(|name| keys_of(name)).collect();
        replace_settings(&mut config, own, &keys)?;
        Ok(Options { kept_calls, origin, ..config.options })
    }

    fn into_own_options(self) -> Result<Options, String> {
        let (certificate, key) = self.certificate.clone().unzip();
        Ok(Options {
            store: self.store_settings()?,
            management: self.management_settings()?,
            tokens: self.token_settings()?,
            gateway: self.gateway_settings()?,
            agents: self.agent_settings()?,
            certificate: CertificateSettings { certificate, key },
            domains: DomainSettings { reserved_only: self.reserved_domains_only },
            monitoring: self.monitoring_settings()?,
            kept_calls: self.kept_calls,
            origin: self.origin.map_or_else(Origin::default, |(seed, begin)| {
                Origin::from_seed(seed, UNIX_EPOCH + Duration::from_micros(begin))
            }),
            ..Options::default()
        })
    }

    fn store_settings(&self) -> Result<StoreSettings, String> {
        let server = self.store.as_ref().map(|address| address.parse::<PostgresOptions>());
        let server = server.transpose().map_err(|problem| problem.to_string())?;
        Ok(StoreSettings { path: self.path.clone(), server, ..StoreSettings::default() })
    }

    fn management_settings(&self) -> Result<ManagementSettings, String> {
        let rate_limit = match self.rate_limit {
            Some((requests, window)) => Some((requests, seconds("rate_limit", window)?)),
            None => None,
        };
        Ok(ManagementSettings {
            host: self.host.clone(),
            port: self.port,
            public_url: self.public_url.clone(),
            rate_limit,
            connections: connection_limit("max_api_connections", self.max_api_connections)?,
            ..ManagementSettings::default()
        })
    }

    fn token_settings(&self) -> Result<TokenSettings, String> {
        let admin_key = match (&self.api_key, &self.admin_key_file) {
            (Some(_), Some(_)) => {
                return Err("api_key and admin_key_file exclude each other".to_owned());
            }
            (None, Some(file)) => {
                Some(service::read_admin_key(file).map_err(|problem| problem.to_string())?)
            }
            (key, None) => key.clone().map(Secret),
        };
        Ok(TokenSettings { admin_key, authtoken: self.authtoken.clone().map(Secret) })
    }

    fn gateway_settings(&self) -> Result<GatewaySettings, String> {
        let trusted_proxies = TrustedProxies::parse(&self.trusted_proxies);
        let ambiguous_paths = self.ambiguous_paths.parse::<AmbiguousPaths>();
        let per_address = self.max_connections_per_address;
        Ok(GatewaySettings {
            host: self.edge_host.clone(),
            http_port: self.http_port,
            https_port: self.https_port,
            base_domain: self.base_domain.clone(),
            tls_endpoints: self.tls_endpoints,
            trusted_proxies: trusted_proxies.map_err(|problem| problem.to_string())?,
            ambiguous_paths: ambiguous_paths.map_err(|problem| problem.to_string())?,
            connections: connection_limit("max_connections", self.max_connections)?,
            connections_per_address: connection_limit("max_connections_per_address", per_address)?,
            ..GatewaySettings::default()
        })
    }

    fn agent_settings(&self) -> Result<AgentSettings, String> {
        Ok(AgentSettings {
            port: self.agent_port,
            connections: connection_limit("max_agent_connections", self.max_agent_connections)?,
            heartbeat_interval: seconds("heartbeat", self.heartbeat.0)?,
            heartbeat_tolerance: seconds("heartbeat", self.heartbeat.1)?,
            reserve: seconds("reserve", self.reserve)?,
            ..AgentSettings::default()
        })
    }

    fn monitoring_settings(&self) -> Result<MonitoringSettings, String> {
        let admin_addr = self.admin_addr.as_ref().map(|text| {
            let problem = |problem| format!("admin_addr: {:?} {problem}", mask::url(text));
            HostPort::parse_to_listen(text).map_err(problem)
        });
        let admin_addr = admin_addr.transpose()?;
        Ok(MonitoringSettings { admin_addr, ..MonitoringSettings::default() })
    }
}

/// Returns the duration of an argument.
fn seconds(name: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|problem| format!("{name}: {problem}"))
}

/// The settings that an argument stands for, by their keys.
fn keys_of(name: &str) -> Vec<&str> {
    match name {
        "heartbeat" => vec!["agent.heartbeat_interval", "agent.heartbeat_tolerance"],
        "reserve" => vec!["agent.reserve"],
        "api_key" | "admin_key_file" => vec!["admin_key"],
        "certificate" => vec!["certificate", "certificate_key"],
        name if NO_SETTINGS.contains(&name) => Vec::new(),
        name => vec![name],
    }
}

/// A number of connections; whether it is enough is for the service to say.
fn connection_limit(name: &str, connections: Option<i64>) -> Result<Option<usize>, String> {
    let Some(connections) = connections else { return Ok(None) };
    let limit = usize::try_from(connections);
    limit
        .map(Some)
        .map_err(|_| format!("{name}: {connections} connections are too few; at least 1 is needed"))
}

struct RunningService {
    service: service::Service,
    runtime: ThreadRuntime,
}

#[pymethods]
impl PyService {
    /// Starts a service; the options are those of `ginnel.Service`, as it passes them on.
    #[new]
    fn new(py: Python<'_>, options: ServiceArguments) -> PyResult<Self> {
        let options = options
            .into_options()
            .map_err(|problem| error::new_exception(py, "ConfigError", &problem))?;
        let path = options.store.path.clone();
        let in_memory = path.is_none() && options.store.server.is_none();
        let runtime = ThreadRuntime::start("ginnel-service")?;
        let started = py.detach(|| runtime.block_on(service::Service::start(options)));
        let service = started.map_err(|problem| error::not_started(py, &problem))?;
        let running = RunningService { service, runtime };
        let service = &running.service;
        Ok(Self {
            url: service.url().to_owned(),
            public_url: service.public_url().to_owned(),
            api_key: service.api_key().map(|key| key.0.clone()),
            authtoken: service.authtoken().map(|token| token.0.clone()),
            agent_addr: service.agent_address().map(|address| address.to_string()),
            http_address: service.gateway().http_address().map(|it| it.to_string()),
            https_address: service.gateway().https_address().map(|it| it.to_string()),
            admin_addr: service.admin_address().map(|it| it.to_string()),
            path,
            in_memory,
            ca_pem: service.gateway().authority().pem().to_owned(),
            ca_path: service.gateway().authority().path().map(ToOwned::to_owned),
            running: Mutex::new(Some(running)),
            process: std::process::id(),
        })
    }

    /// Stops; requests in flight are answered for `grace` seconds, or until the handler of a signal
    /// raises. Stopping twice is fine.
    fn stop(&self, py: Python<'_>, grace: &Bound<'_, PyAny>) -> PyResult<()> {
        let grace = shutdown::read_grace(grace)?;
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(RunningService { service, runtime }) = running else { return Ok(()) };
        if self.process != std::process::id() {
            // A fork has only copies: the threads are the parent's.
            std::mem::forget((service, runtime));
            return Ok(());
        }
        let mut exception = None;
        py.detach(|| {
            let force = shutdown::wait_for_interrupt(&mut exception);
            runtime.block_on(service.stop_or_force(grace, force));
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        exception.map_or(Ok(()), Err)
    }

    /// Shows a certificate from now on for the names that it covers; both are PEM files.
    fn use_certificate(&self, py: Python<'_>, chain: PathBuf, key: PathBuf) -> PyResult<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = running.as_ref() else { return Ok(()) };
        let replaced = running.service.gateway().authority().provide_certificate(&chain, &key);
        replaced.map_err(|problem| error::new_exception(py, "ServiceError", &problem.to_string()))
    }

    /// What is decided on public traffic from now on.
    fn events(&self) -> Option<TrafficEvents> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_ref()?;
        Some(TrafficEvents::from_subscriber(running.service.events(), running.runtime.handle()))
    }

    #[getter]
    fn is_running(&self) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl PyService {
    /// Works with the service while it runs, without the interpreter's lock.
    pub(super) fn with_service<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&service::Service, &ThreadRuntime) -> T + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_ref().map(|running| work(&running.service, &running.runtime))
        });
        done.ok_or_else(|| error::new_exception(py, "ServiceError", "the service has stopped"))
    }
}

impl Drop for PyService {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(RunningService { service, runtime }) = running else { return };
        if self.process != std::process::id() {
            std::mem::forget((service, runtime));
            return;
        }
        drop((service, runtime));
    }
}

/// Returns a URL with its host in the `xn--` form. The URL is `scheme://host[:port]`, and an error if its host is not a
/// host name.
#[pyfunction]
pub(super) fn with_ascii_host(url: &str) -> PyResult<String> {
    let ascii = address::with_ascii_host(url).and_then(|ascii| {
        Authority::parse(&ascii)?;
        Ok(ascii.into_owned())
    });
    ascii.map_err(|problem| PyValueError::new_err(format!("{:?} {problem}", mask::url(url))))
}

/// Runs the command; gives its exit code.
#[pyfunction]
pub(super) fn main(py: Python<'_>, arguments: Vec<String>) -> PyResult<u8> {
    let interpreter: Option<std::path::PathBuf> =
        py.import("sys")?.getattr("executable")?.extract()?;
    interpreter.into_iter().for_each(ginnel_cli::set_interpreter);
    Ok(py.detach(|| ginnel_cli::main(arguments)))
}
