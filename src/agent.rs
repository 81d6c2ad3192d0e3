//! The agent in this process, as Python sees it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use ginnel_agent::capture::CaptureLimit;
use ginnel_agent::{self as agent, AgentOptions, ByteSize, SessionState, Trust, WebAddress};
use ginnel_api::{Secret, mask};
use ginnel_base::address::{AddressError, HostPort};
use ginnel_base::thread_runtime::ThreadRuntime;

use super::{error, shutdown};

/// An agent with the threads that serve it.
#[pyclass(frozen, module = "ginnel._native", name = "Agent")]
pub(super) struct PyAgent {
    running: Mutex<Option<RunningAgent>>,
    process: u32,
    #[pyo3(get)]
    url: Option<String>,
    /// Where it is watched, `host:port`.
    #[pyo3(get)]
    admin_addr: Option<String>,
}

struct RunningAgent {
    agent: agent::Agent,
    runtime: ThreadRuntime,
}

/// The options as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct AgentArguments {
    server_addrs: Vec<String>,
    authtoken: String,
    ca_pem: Option<String>,
    ca_path: Option<PathBuf>,
    proxy_url: Option<String>,
    web_addr: Option<String>,
    web_allow_hosts: Vec<String>,
    unix_socket_roots: Vec<PathBuf>,
    inspect_db_size: i64,
    inspect_body_limit: Option<usize>,
    inspect_file: Option<PathBuf>,
    inspect_file_size: usize,
    inspect_file_age: f64,
    metadata: String,
    heartbeat: (f64, f64),
    remote_management: bool,
    closed: Vec<String>,
    admin_addr: Option<String>,
}

impl AgentArguments {
    fn into_options(self) -> Result<AgentOptions, String> {
        let seconds = |seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|problem| format!("heartbeat: {problem}"))
        };
        let trust = match (self.ca_pem, self.ca_path) {
            (Some(pem), _) => Trust::Pem(pem.into_bytes()),
            (None, Some(path)) => {
                Trust::from_file(&path).map_err(|problem| format!("ca: {problem}"))?
            }
            (None, None) => Trust::System,
        };
        let mut options = AgentOptions::new(None, Secret(self.authtoken), trust);
        let address = |field: &str, text: &str, parsed: Result<HostPort, AddressError>| {
            parsed.map_err(|problem| format!("{field}: {:?} {problem}", mask::url(text)))
        };
        let server_addrs = self.server_addrs.iter();
        let server_addrs = server_addrs.map(|it| address("server_addr", it, HostPort::parse(it)));
        options.server_addrs = server_addrs.collect::<Result<_, _>>()?;
        options.proxy_url = self.proxy_url.map(Secret);
        options.web_addr = match self.web_addr {
            None => WebAddress::Off,
            Some(text) if text.is_empty() => WebAddress::Default,
            Some(text) => {
                WebAddress::At(address("web_addr", &text, HostPort::parse_to_listen(&text))?)
            }
        };
        options.web_allow_hosts = self.web_allow_hosts;
        options.unix_socket_roots = self.unix_socket_roots;
        options.inspect = CaptureLimit::from_setting(self.inspect_db_size)
            .ok_or("inspect_db_size: must be -1, 0 or a number of bytes")?;
        options.inspect_body_limit = self.inspect_body_limit.map(ByteSize);
        options.inspect_file = self.inspect_file;
        options.inspect_file_size.0 = self.inspect_file_size;
        options.inspect_file_age = Duration::try_from_secs_f64(self.inspect_file_age)
            .map_err(|problem| format!("inspect_file_age: {problem}"))?;
        options.metadata = self.metadata;
        options.heartbeat_interval = seconds(self.heartbeat.0)?;
        options.heartbeat_tolerance = seconds(self.heartbeat.1)?;
        options.remote_management = self.remote_management;
        let admin_addr = self.admin_addr.as_deref();
        let admin_addr =
            admin_addr.map(|text| address("admin_addr", text, HostPort::parse_to_listen(text)));
        options.admin_addr = admin_addr.transpose()?;
        let closed = self.closed.iter().map(|address| address.parse());
        options.closed = closed.collect::<Result<_, _>>().map_err(|_| "closed: no address")?;
        Ok(options)
    }
}

/// The class and the message of the exception for an agent that did not start.
fn not_started(problem: &agent::Error) -> (&'static str, String) {
    let class = match problem {
        agent::Error::Option { .. } => "ConfigError",
        _ => "AgentError",
    };
    (class, problem.to_string())
}

#[pymethods]
impl PyAgent {
    /// Starts an agent; the options are those of `ginnel.Agent`, as it passes them on.
    #[new]
    fn new(py: Python<'_>, options: AgentArguments) -> PyResult<Self> {
        let options = options
            .into_options()
            .map_err(|problem| error::new_exception(py, "ConfigError", &problem))?;
        let running = py.detach(|| {
            let runtime = ThreadRuntime::start("ginnel-agent")
                .map_err(|problem| ("AgentError", problem.to_string()))?;
            let agent = runtime.block_on(agent::Agent::start(options));
            Ok(RunningAgent { agent: agent.map_err(|problem| not_started(&problem))?, runtime })
        });
        let running: Result<_, (_, String)> = running;
        let running =
            running.map_err(|(class, problem)| error::new_exception(py, class, &problem))?;
        Ok(Self {
            url: running.agent.api_url(),
            admin_addr: running.agent.admin_address().map(|it| it.to_string()),
            running: Mutex::new(Some(running)),
            process: std::process::id(),
        })
    }

    /// Waits until the agent is online, or `timeout` seconds; gives the word for its state then, and
    /// what went wrong last.
    fn wait_online(&self, py: Python<'_>, timeout: f64) -> PyResult<(String, Option<String>)> {
        let deadline = std::time::Instant::now()
            + Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(3600));
        loop {
            let (state, problem) = self.state();
            let done = matches!(state.as_str(), "online" | "offline");
            if done || std::time::Instant::now() >= deadline {
                return Ok((state, problem));
            }
            py.check_signals()?;
            py.detach(|| std::thread::sleep(Duration::from_millis(2)));
        }
    }

    /// The word for the agent's state, and what went wrong last.
    fn state(&self) -> (String, Option<String>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.as_ref() {
            Some(RunningAgent { agent, .. }) => {
                (agent.session_state().name().to_owned(), agent.last_error())
            }
            None => (SessionState::Offline.name().to_owned(), None),
        }
    }

    /// Stops: takes no more visitors, and serves those in flight for `grace` seconds, or until the
    /// handler of a signal raises. Stopping twice is fine.
    fn stop(&self, py: Python<'_>, grace: &Bound<'_, PyAny>) -> PyResult<()> {
        let grace = shutdown::read_grace(grace)?;
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(RunningAgent { agent, runtime }) = running else { return Ok(()) };
        if self.process != std::process::id() {
            // A fork has only copies: the threads are the parent's.
            std::mem::forget((agent, runtime));
            return Ok(());
        }
        let mut exception = None;
        py.detach(|| {
            let force = shutdown::wait_for_interrupt(&mut exception);
            runtime.block_on(agent.stop_or_force(grace, force));
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        exception.map_or(Ok(()), Err)
    }

    #[getter]
    fn is_running(&self) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for PyAgent {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(RunningAgent { agent, runtime }) = running else { return };
        if self.process != std::process::id() {
            std::mem::forget((agent, runtime));
            return;
        }
        drop((agent, runtime));
    }
}
