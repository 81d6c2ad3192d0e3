//! What every client class of Python stands on: one object for all operations.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use ginnel_api::{Call, Info, Output, Verb};
use ginnel_client::{Api, ApiResponse, CallEvent, Client, Observer, RecordedResponse};

use super::cassette::Playback;
use super::event_loop::{LoopDriver, ResponseHandler};
use super::exit::{CallGuard, run_attached};
use super::expected_result::ExpectedResult;
use super::logging;
use super::observer::CallObserver;
use super::options::ClientChanges;
use super::pending_call::PendingCall;
use super::results;
use super::{arguments, error, options, table};

/// A client of one of the APIs. Python's classes hold one and say what is called on it.
#[pyclass(frozen, module = "ginnel._native")]
pub(super) struct Core {
    client: Client,
    /// What is called with events; see `ginnel/events.py`.
    hooks: Option<Py<PyAny>>,
    /// The driver of the event loop of the last call; weak, as the loop may end before the client.
    driver: Mutex<Option<Py<PyWeakrefReference>>>,
    /// Whether calls return answers as they came.
    #[pyo3(get)]
    is_raw: bool,
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (options))]
    fn new(options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let client = Client::new(options::read_options(options)?);
        let client = client.map_err(|problem| error::config_error(options.py(), &problem))?;
        let hooks = options.get_item("hooks")?.filter(|hooks| !hooks.is_none());
        Ok(Self {
            client,
            hooks: hooks.map(Bound::unbind),
            driver: Mutex::default(),
            is_raw: false,
        })
    }

    /// The same connections with other options: timeout, deadline, max_retries, headers,
    /// service_version, extra_query.
    #[pyo3(signature = (*changed))]
    fn with_options<'py>(&self, py: Python<'py>, changed: ClientChanges<'py>) -> PyResult<Self> {
        let client = self.client.with_options(options::read_changes(&changed)?);
        Ok(self.with_client(py, client.map_err(|problem| error::config_error(py, &problem))?))
    }

    /// The same client whose calls return answers as they came.
    fn raw(&self, py: Python<'_>) -> Self {
        Self { is_raw: true, ..self.with_client(py, self.client.clone()) }
    }

    /// The same client with a deadline of so many seconds, at least a millisecond.
    fn within(&self, py: Python<'_>, seconds: f64) -> Self {
        // What is longer than a duration can be is long enough as a day.
        let deadline = Duration::try_from_secs_f64(seconds.max(0.001));
        let client = self.client.with_deadline(deadline.unwrap_or(Duration::from_secs(86_400)));
        self.with_client(py, client)
    }

    /// The same client for one call: with more headers, and with these hooks instead of its own.
    fn for_call(&self, headers: Vec<(String, String)>, hooks: Bound<'_, PyAny>) -> PyResult<Self> {
        let client = self.client.with_headers(&headers);
        let client = client.map_err(|problem| error::config_error(hooks.py(), &problem))?;
        Ok(Self { hooks: Some(hooks.clone().unbind()), ..self.with_client(hooks.py(), client) })
    }

    /// Performs an operation and waits for its result.
    fn call<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        result: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let guard = CallGuard::new(py);
        let info = table::find_operation(operation)?;
        let call = arguments::encode_call(info, arguments)?;
        self.send_and_wait(&guard, py, call, self.expected_result(info, result)?)
    }

    /// Performs a list operation, or fetches the page at `next`.
    #[pyo3(signature = (operation, result, arguments, next = None))]
    fn page<'py>(
        &self,
        py: Python<'py>,
        operation: &str,
        result: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        next: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let guard = CallGuard::new(py);
        let info = table::find_operation(operation)?;
        let call = self.page_call(py, info, arguments, next)?;
        self.send_and_wait(&guard, py, call, self.expected_result(info, result)?)
    }

    /// Sends any request and waits for its JSON.
    #[pyo3(signature = (method, path, json = None, query = None))]
    fn request<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        path: &str,
        json: Option<&Bound<'py, PyAny>>,
        query: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let guard = CallGuard::new(py);
        let call = free_call(py, method, path, json, query)?;
        self.send_and_wait(&guard, py, call, self.expected_json())
    }

    /// Starts an operation in the running event loop; what it returns is awaited.
    fn start(
        &self,
        py: Python<'_>,
        operation: &str,
        result: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<Py<PendingCall>> {
        let _guard = CallGuard::new(py);
        let info = table::find_operation(operation)?;
        let call = arguments::encode_call(info, arguments)?;
        self.send_call(py, call, self.expected_result(info, result)?)
    }

    /// Starts to fetch a page, as `page` and `start`.
    #[pyo3(signature = (operation, result, arguments, next = None))]
    fn start_page(
        &self,
        py: Python<'_>,
        operation: &str,
        result: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
        next: Option<&str>,
    ) -> PyResult<Py<PendingCall>> {
        let _guard = CallGuard::new(py);
        let info = table::find_operation(operation)?;
        let call = self.page_call(py, info, arguments, next)?;
        self.send_call(py, call, self.expected_result(info, result)?)
    }

    /// Starts any request, as `request` and `start`.
    #[pyo3(signature = (method, path, json = None, query = None))]
    fn start_request(
        &self,
        py: Python<'_>,
        method: &str,
        path: &str,
        json: Option<&Bound<'_, PyAny>>,
        query: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PendingCall>> {
        let _guard = CallGuard::new(py);
        let call = free_call(py, method, path, json, query)?;
        self.send_call(py, call, self.expected_json())
    }

    /// Closes the idle connections; calls fail from now on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The address that requests go to.
    #[getter]
    fn base_url(&self) -> String {
        self.client.settings().origin.to_string()
    }

    /// The end of the key, to tell keys apart.
    #[getter]
    fn key_hint(&self) -> &str {
        self.client.settings().key_hint()
    }

    /// Resources and pagers hold this; clients refuse by themselves.
    fn __reduce__(&self) -> PyResult<()> {
        let client = match self.client.settings().api {
            Api::Remote => "RemoteClient",
            Api::Agent => "AgentClient",
        };
        Err(PyTypeError::new_err(format!(
            "what belongs to a client cannot be pickled or copied deeply: a client has open \
             connections; make another {client} where it is needed, or share it between threads"
        )))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.hooks)
    }
}

impl Core {
    /// Another client with the same hooks and the same form of results.
    fn with_client(&self, py: Python<'_>, client: Client) -> Self {
        let hooks = self.hooks.as_ref().map(|hooks| hooks.clone_ref(py));
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = driver.as_ref().map(|driver| driver.clone_ref(py));
        Self { client, hooks, driver: Mutex::new(driver), is_raw: self.is_raw }
    }

    fn expected_result(
        &self,
        info: &'static Info,
        class: &Bound<'_, PyAny>,
    ) -> PyResult<ExpectedResult> {
        let plan = match info.output {
            Output::Nothing => None,
            Output::One(shape) | Output::Page { item: shape, .. } => {
                Some(results::plan_for_class(shape, class)?)
            }
        };
        Ok(ExpectedResult::for_operation(info, plan, self.is_raw))
    }

    fn expected_json(&self) -> ExpectedResult {
        ExpectedResult::any_json(self.is_raw)
    }

    /// Sends a request in the running event loop.
    fn send_call(
        &self,
        py: Python<'_>,
        call: Call,
        expected: ExpectedResult,
    ) -> PyResult<Py<PendingCall>> {
        let event_loop = running_loop(py)?;
        let driver = self.driver_for_loop(&event_loop)?;
        let observer = self.call_observer(py, &call, &expected)?;
        let call = self.client.complete_call(call);
        let recording = match Playback::for_call(py, &self.client, &call)? {
            Playback::Off => None,
            Playback::Record(recording) => Some(recording),
            Playback::Replay(recorded) => {
                let answer = self.replay_response(py, call, recorded, observer.as_ref())?;
                let outcome = answer.and_then(|answer| expected.convert_response(py, answer));
                return LoopDriver::settle_soon(&driver, &event_loop, outcome);
            }
        };
        let started = (call, ResponseHandler { expected, recording });
        LoopDriver::start_call(&driver, &event_loop, &self.client, started, observer)
    }

    /// The driver of a loop; most calls are of the same loop as the one before.
    fn driver_for_loop<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, LoopDriver>> {
        let py = event_loop.py();
        let last = self.last_driver(py);
        if let Some(last) = last.filter(|last| last.get().drives_loop(event_loop)) {
            return Ok(last);
        }
        let find =
            py.import(intern!(py, "ginnel._core.event_loop"))?.getattr(intern!(py, "driver"))?;
        let driver: Bound<'py, LoopDriver> = find.call1((event_loop,))?.cast_into()?;
        let weak = PyWeakrefReference::new(&driver)?.unbind();
        let mut last = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(weak);
        drop(last);
        drop(before);
        Ok(driver)
    }

    fn last_driver<'py>(&self, py: Python<'py>) -> Option<Bound<'py, LoopDriver>> {
        let last = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref()?.bind(py).upgrade_as().ok()?
    }

    /// Sends a request without the interpreter's lock; signals such as Ctrl-C end the wait.
    fn send_and_wait<'py>(
        &self,
        guard: &CallGuard<'py>,
        py: Python<'py>,
        call: Call,
        expected: ExpectedResult,
    ) -> PyResult<Bound<'py, PyAny>> {
        let observer = self.call_observer(py, &call, &expected)?;
        let call = self.client.complete_call(call);
        let recording = match Playback::for_call(py, &self.client, &call)? {
            Playback::Off => None,
            Playback::Record(recording) => Some(recording),
            Playback::Replay(recorded) => {
                return expected.convert_response(
                    py,
                    self.replay_response(py, call, recorded, observer.as_ref())??,
                );
            }
        };
        let raised = RaisedError::default();
        let mut on_event = |event: CallEvent| {
            let observer = observer.as_ref();
            let notified =
                observer.and_then(|observer| run_attached(|py| observer.notify(py, &event)));
            match raised.keep(notified.and_then(Result::err)) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let filter = observer.as_ref().map(CallObserver::filter);
        let client_observer = filter.map(|filter| Observer { filter, on_event: &mut on_event });
        let outcome = guard.run_detached(|| {
            self.client.send_blocking(call, client_observer, || {
                let check = |py: Python<'_>| py.check_signals().err();
                runs_signal_handlers() && raised.keep(run_attached(check).flatten())
            })
        });
        raised.into_result()?;
        logging::deliver_records(py)?;
        let answer = outcome.map_err(|problem| error::call_error(py, problem))?;
        let interrupted = || error::new_exception(py, "APIError", "the call was interrupted");
        let answer = answer.ok_or_else(interrupted)?;
        if let Some(recording) = recording {
            recording.record_response(py, &answer)?;
        }
        let accepted = answer.error_for_status().map_err(|problem| error::call_error(py, problem));
        accepted.and_then(|answer| expected.convert_response(py, answer))
    }

    fn call_observer(
        &self,
        py: Python<'_>,
        call: &Call,
        expected: &ExpectedResult,
    ) -> PyResult<Option<CallObserver>> {
        CallObserver::for_call(py, self.hooks.as_ref(), (self.client.settings(), call), expected)
    }

    /// The answer that a cassette has, or the exception that it stands for.
    ///
    /// # Errors
    /// With what a hook raised to end the call.
    fn replay_response(
        &self,
        py: Python<'_>,
        call: Call,
        recorded: RecordedResponse,
        observer: Option<&CallObserver>,
    ) -> PyResult<PyResult<ApiResponse>> {
        let mut notified = Ok(());
        let answer = self.client.replay_response(call, recorded, |event| {
            if let (Some(observer), Ok(())) = (observer, &notified) {
                notified = observer.notify(py, &event);
            }
        });
        notified?;
        Ok(answer
            .and_then(ApiResponse::error_for_status)
            .map_err(|problem| error::call_error(py, problem)))
    }

    fn page_call(
        &self,
        py: Python<'_>,
        info: &Info,
        arguments: &Bound<'_, PyTuple>,
        next: Option<&str>,
    ) -> PyResult<Call> {
        let Some(next) = next else { return arguments::encode_call(info, arguments) };
        // An address without a path is one at that of the first page.
        let target = if info.path.contains('{') {
            self.client.page_target(next, &arguments::encode_call(info, arguments)?.target)
        } else {
            self.client.page_target(next, info.path)
        };
        let target = target.map_err(|problem| error::call_error(py, problem))?;
        Ok(Call { method: Verb::GET, target, body: None })
    }
}

/// The event loop that runs on this thread.
fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Importing asyncio takes longer than importing us; where a loop runs it has been imported.
    let import =
        || Ok::<_, PyErr>(py.import("ginnel._core.event_loop")?.getattr("running_loop")?.unbind());
    let running_loop = RUNNING.get_or_try_init(py, import)?.bind(py);
    running_loop.call0().map_err(|error| no_loop(py, error))
}

/// What to say where no event loop runs; trio has none that a call could wait in.
fn no_loop(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyRuntimeError>(py) {
        return error;
    }
    let said = py
        .import("ginnel._core.no_event_loop")
        .and_then(|module| module.call_method0("no_loop_error"));
    said.map_or_else(|failed| failed, PyErr::from_value)
}

/// Whether handlers of signals run on this thread, as far as the system tells.
fn runs_signal_handlers() -> bool {
    #[cfg(target_os = "linux")]
    {
        rustix::thread::gettid() == rustix::process::getpid()
    }
    #[cfg(not(target_os = "linux"))]
    true
}

/// A request that no operation describes.
fn free_call(
    py: Python<'_>,
    method: &str,
    path: &str,
    json: Option<&Bound<'_, PyAny>>,
    query: Option<&Bound<'_, PyAny>>,
) -> PyResult<Call> {
    let wrong = |problem: &str| error::new_exception(py, "ValidationError", problem);
    let method = match method.to_ascii_uppercase().as_str() {
        "GET" => Verb::GET,
        "POST" => Verb::POST,
        "PUT" => Verb::PUT,
        "PATCH" => Verb::PATCH,
        "DELETE" => Verb::DELETE,
        _ => return Err(wrong("method: must be GET, POST, PUT, PATCH or DELETE")),
    };
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(wrong("path: must start with / and hold no query; use query="));
    }
    let mut target = path.to_owned();
    if let Some(query) = query.filter(|query| !query.is_none()) {
        ginnel_api::append_query(arguments::query_parameters(query)?.iter(), &mut target);
    }
    let body = match json.filter(|json| !json.is_none()) {
        Some(json) => Some(arguments::json_text(json, "json")?.into()),
        None => None,
    };
    Ok(Call { method, target, body })
}

/// Forbids connections to other machines, or allows them again; says what was before.
#[pyfunction]
pub(super) fn loopback_only(forbid: bool) -> bool {
    ginnel_client::loopback_only(forbid)
}

/// The error that ends a call: raised by a hook, or by the handler of a signal.
#[derive(Default)]
struct RaisedError(Mutex<Option<PyErr>>);

impl RaisedError {
    /// Keeps an error. Returns true if there is one.
    fn keep(&self, error: Option<PyErr>) -> bool {
        let is_raised = error.is_some();
        if is_raised {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
        is_raised
    }

    fn into_result(self) -> PyResult<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}
