//! Tells Python what happens to calls: its logger, and the hooks of a client.
//!
//! A program that never imported `logging` and has no hooks pays nothing. In any other, one question
//! to the logger decides whether a call is watched.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::core::Expected;
use crate::api::Call;
use crate::client::{Event, Settings, What};

/// The level `DEBUG` of Python's `logging`.
const DEBUG: u8 = 10;

/// Who wants to know what happens to a call.
pub(super) struct Watch {
    method: &'static str,
    path: Cow<'static, str>,
    hooks: Option<Py<PyAny>>,
    interest: Interest,
}

/// Which events matter.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Interest {
    All,
    Retries,
}

impl Interest {
    pub(super) fn covers(self, event: &Event) -> bool {
        self == Self::All || matches!(event.what, What::Repeats { .. })
    }
}

impl Watch {
    /// The watch over a call; none when nobody wants to know.
    pub(super) fn over(
        py: Python<'_>,
        hooks: Option<&Py<PyAny>>,
        (settings, call): (&Settings, &Call),
        expected: &Expected,
    ) -> PyResult<Option<Self>> {
        let logger = logger(py)?;
        if hooks.is_none() && logger.is_none() {
            return Ok(None);
        }
        let interest = match (hooks, logger) {
            (None, Some(logger)) if !is_enabled(logger)? => Interest::Retries,
            _ => Interest::All,
        };
        let path = match expected {
            Expected::Output(info, _) => Cow::Borrowed(info.path),
            Expected::Free => {
                let path = call.target.split('?').next().unwrap_or_default();
                Cow::Owned(settings.redacted(path))
            }
        };
        let hooks = hooks.map(|hooks| hooks.clone_ref(py));
        Ok(Some(Self { method: call.method.as_str(), path, hooks, interest }))
    }

    pub(super) fn interest(&self) -> Interest {
        self.interest
    }

    /// Tells of an event. What goes wrong in a hook or a log handler does not end the call.
    pub(super) fn tell(&self, py: Python<'_>, event: &Event) {
        if let Err(problem) = self.hand_over(py, event) {
            problem.write_unraisable(py, self.hooks.as_ref().map(|hooks| hooks.bind(py)));
        }
    }

    fn hand_over(&self, py: Python<'_>, event: &Event) -> PyResult<()> {
        let fields = PyDict::new(py);
        fields.set_item("method", self.method)?;
        fields.set_item("path", &*self.path)?;
        fields.set_item("attempt", event.attempt)?;
        let (kind, status, lasted, problem) = match &event.what {
            What::Sent => ("request", None, None, None),
            What::Answered { status, took } => ("response", Some(*status), Some(*took), None),
            What::Failed { problem, took } => ("failure", None, Some(*took), Some(problem)),
            What::Repeats { status, pause } => ("retry", *status, Some(*pause), None),
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
fn logger(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(logger) = LOGGER.get(py) {
        return Ok(Some(logger.bind(py)));
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    if !modules.contains(intern!(py, "logging"))? {
        return Ok(None);
    }
    let made = py.import(intern!(py, "ginnel.events"))?.getattr(intern!(py, "_logger"))?;
    Ok(Some(LOGGER.get_or_init(py, || made.unbind()).bind(py)))
}
