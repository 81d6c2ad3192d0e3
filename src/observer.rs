//! Tells Python what happens to calls: its logger, and the hooks of a client.
//!
//! A program that never imported `logging` and has no hooks pays nothing. In any other, one question
//! to the logger decides whether a call is watched.

use std::borrow::Cow;

use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use ginnel_api::Call;
use ginnel_client::{CallEvent, CallEventKind, ClientSettings, EventFilter};

use super::error;
use super::expected_result::ExpectedResult;

/// The level `DEBUG` of Python's `logging`.
const DEBUG: u8 = 10;

/// Who wants to know what happens to a call.
pub(super) struct CallObserver {
    method: &'static str,
    path: Cow<'static, str>,
    hooks: Option<Py<PyAny>>,
    filter: EventFilter,
}

impl CallObserver {
    /// The watch over a call; none when nobody wants to know.
    pub(super) fn for_call(
        py: Python<'_>,
        hooks: Option<&Py<PyAny>>,
        (settings, call): (&ClientSettings, &Call),
        expected: &ExpectedResult,
    ) -> PyResult<Option<Self>> {
        let logger = ginnel_logger(py)?;
        if hooks.is_none() && logger.is_none() {
            return Ok(None);
        }
        let filter = match (hooks, logger) {
            (None, Some(logger)) if !is_enabled(logger)? => EventFilter::Retries,
            _ => EventFilter::All,
        };
        let path = match expected.operation() {
            Some(info) => Cow::Borrowed(info.path),
            None => {
                let path = call.target.split('?').next().unwrap_or_default();
                Cow::Owned(settings.redact_text(path))
            }
        };
        let hooks = hooks.map(|hooks| hooks.clone_ref(py));
        Ok(Some(Self { method: call.method.as_str(), path, hooks, filter }))
    }

    /// Which events matter.
    pub(super) fn filter(&self) -> EventFilter {
        self.filter
    }

    /// Tells of an event. What goes wrong in a hook or a log handler does not end the call.
    ///
    /// # Errors
    /// With what is no error but an end, such as KeyboardInterrupt.
    pub(super) fn notify(&self, py: Python<'_>, event: &CallEvent) -> PyResult<()> {
        if !self.filter.covers_event(event) {
            return Ok(());
        }
        let Err(problem) = self.deliver_event(py, event) else { return Ok(()) };
        if !problem.is_instance_of::<PyException>(py) {
            return Err(problem);
        }
        problem.write_unraisable(py, self.hooks.as_ref().map(|hooks| hooks.bind(py)));
        Ok(())
    }

    /// Shows what this holds to the garbage collector.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.hooks)
    }

    fn deliver_event(&self, py: Python<'_>, event: &CallEvent) -> PyResult<()> {
        let fields = PyDict::new(py);
        fields.set_item("method", self.method)?;
        fields.set_item("path", &*self.path)?;
        fields.set_item("attempt", event.attempt)?;
        let (kind, status, lasted, problem) = match &event.kind {
            CallEventKind::Sent => ("request", None, None, None),
            CallEventKind::Answered { status, elapsed, headers } => {
                fields.set_item("headers", error::headers_dict(py, headers)?)?;
                ("response", Some(*status), Some(*elapsed), None)
            }
            CallEventKind::Failed { problem, elapsed } => {
                ("failure", None, Some(*elapsed), Some(problem))
            }
            CallEventKind::Repeats { status, pause } => ("retry", *status, Some(*pause), None),
        };
        fields.set_item("kind", kind)?;
        fields.set_item("status", status)?;
        fields.set_item("seconds", lasted.unwrap_or_default().as_secs_f64())?;
        fields.set_item("problem", problem)?;
        let module = py.import(intern!(py, "ginnel.events"))?;
        let event = module.getattr(intern!(py, "Event"))?.call((), Some(&fields))?;
        module.getattr(intern!(py, "_tell"))?.call1((&self.hooks, event)).map(drop)
    }
}

/// True when the logger takes a line for each request.
fn is_enabled(logger: &Bound<'_, PyAny>) -> PyResult<bool> {
    logger.call_method1(intern!(logger.py(), "isEnabledFor"), (DEBUG,))?.is_truthy()
}

/// The logger `ginnel`; none while nobody has imported `logging`, and so nobody can have asked.
fn ginnel_logger(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static MODULES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(logger) = LOGGER.get(py) {
        return Ok(Some(logger.bind(py)));
    }
    let import = || Ok::<_, PyErr>(py.import("sys")?.getattr("modules")?.unbind());
    let modules = MODULES.get_or_try_init(py, import)?.bind(py);
    if !modules.contains(intern!(py, "logging"))? {
        return Ok(None);
    }
    // Not from `ginnel.events`, whose dataclass would take most of the first call.
    let made = py.import(intern!(py, "ginnel._core.logs"))?.getattr(intern!(py, "logger"))?;
    Ok(Some(LOGGER.get_or_init(py, || made.unbind()).bind(py)))
}
