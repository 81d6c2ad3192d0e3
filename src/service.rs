//! The embedded service and the command, as Python sees them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use serde_json::Value;

use ginnel_api::{Origin, mask};
use ginnel_base::address::{self, Authority};
use ginnel_base::thread_runtime::ThreadRuntime;
use ginnel_service::config::{ServeConfig, load_embedded, replace_keyword};
use ginnel_service::{self as service, Options};

use super::options::class_name;
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

/// Puts the options of a service together: those of the file, then those of `settings`, then those of keywords.
fn read_options(
    keywords: &Bound<'_, PyDict>,
    file: Option<PathBuf>,
    settings: Option<&str>,
) -> PyResult<Options> {
    let refuse = |problem: String| error::new_exception(keywords.py(), "ConfigError", &problem);
    let mut config = match (&file, settings) {
        (None, None) => ServeConfig::default(),
        (file, settings) => load_settings(file.as_deref(), settings).map_err(refuse)?,
    };
    let has_value = |name| -> PyResult<bool> {
        Ok(keywords.get_item(name)?.is_some_and(|value| !value.is_none()))
    };
    // The file's is in the options already.
    config.admin_key_file = None;
    for (name, value) in keywords {
        let name: String = name.extract()?;
        let texts = read_texts(&name, &value)?;
        replace_keyword(&mut config, &name, texts).map_err(refuse)?;
    }
    if let Some(file) = &config.admin_key_file {
        if has_value("api_key")? {
            return Err(refuse("api_key and admin_key_file exclude each other".to_owned()));
        }
        let key = service::read_admin_key(file).map_err(|problem| refuse(problem.to_string()))?;
        config.options.tokens.admin_key = Some(key);
    }
    // An argument with a database replaces a database of the other kind.
    let store = &mut config.options.store;
    match (has_value("path")?, has_value("store")?) {
        (true, false) => store.server = None,
        (false, true) => store.path = None,
        _ => {}
    }
    Ok(config.options)
}

fn load_settings(file: Option<&Path>, settings: Option<&str>) -> Result<ServeConfig, String> {
    let settings = settings.map_or(Ok(Value::Null), serde_json::from_str);
    let settings = settings.map_err(|problem| format!("settings: {problem}"))?;
    load_embedded(file, settings).map_err(|problems| problems.join("\n"))
}

/// Returns the value of an argument as a file would have it, or `None` for Python's. Sequences have a text for each
/// item.
fn read_texts(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<OsString>>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Some(text) = read_text(value) {
        return Ok(Some(vec![text]));
    }
    let problem = |value: &Bound<'_, PyAny>| {
        let problem = format!("{name}: {} is no type of a setting", class_name(value));
        error::new_exception(value.py(), "ConfigError", &problem)
    };
    let items = value.try_iter().map_err(|_| problem(value))?;
    let texts = items.map(|item| {
        let item = item?;
        read_text(&item).ok_or_else(|| problem(&item))
    });
    texts.collect::<PyResult<_>>().map(Some)
}

/// The text of a truth value, a path, a text or a number.
fn read_text(value: &Bound<'_, PyAny>) -> Option<OsString> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Some(flag.is_true().to_string().into());
    }
    let path = value.extract::<PathBuf>().map(PathBuf::into_os_string);
    let path = path.or_else(|_| value.extract::<i64>().map(|number| number.to_string().into()));
    path.or_else(|_| value.extract::<f64>().map(|number| number.to_string().into())).ok()
}

struct RunningService {
    service: service::Service,
    runtime: ThreadRuntime,
}

#[pymethods]
impl PyService {
    /// Starts a service. The keywords are the arguments of `ginnel.Service` that its caller has passed, as far as they
    /// are settings; `config` is a configuration file, `settings` has more settings as JSON, and `origin` is a seed
    /// with microseconds since the Unix epoch.
    #[new]
    fn new(
        py: Python<'_>,
        keywords: &Bound<'_, PyDict>,
        config: Option<PathBuf>,
        settings: Option<&str>,
        origin: Option<(u64, u64)>,
        kept_calls: usize,
    ) -> PyResult<Self> {
        let origin = origin.map_or_else(Origin::default, |(seed, begin)| {
            Origin::from_seed(seed, UNIX_EPOCH + Duration::from_micros(begin))
        });
        let options = read_options(keywords, config, settings)?;
        let options = Options { origin, kept_calls, ..options };
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
