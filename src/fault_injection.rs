//! The test doubles of a service, as Python sees them.

use std::time::Duration;

use pyo3::exceptions::{PyLookupError, PyValueError};
use pyo3::prelude::*;

use ginnel_api::{Info, remote};
use ginnel_service::InjectedFault;

use super::error;
use super::service::PyService;

/// A state of a service to return to.
#[pyclass(frozen, module = "ginnel._native", name = "Snapshot")]
pub(super) struct PySnapshot(ginnel_store::Snapshot);

/// What tests ask of a service.
#[pyclass(frozen, module = "ginnel._native", name = "Rehearsal")]
pub(super) struct FaultInjector(Py<PyService>);

#[pymethods]
impl FaultInjector {
    #[new]
    fn new(service: Py<PyService>) -> Self {
        Self(service)
    }

    /// Has calls of an operation fail; the arguments are those of `ginnel.Service.fail`.
    #[pyo3(signature = (operation, status, times, retry_after, delay, cut))]
    #[allow(clippy::too_many_arguments, reason = "each is an argument in Python as well")]
    fn fail(
        &self,
        py: Python<'_>,
        operation: Option<String>,
        status: Option<u16>,
        times: Option<u32>,
        retry_after: Option<u64>,
        delay: f64,
        cut: bool,
    ) -> PyResult<()> {
        if let Some(name) = &operation {
            let is_named = |info: &Info| name.rsplit_once('.') == Some((info.resource, info.name));
            if !remote::operations().any(is_named) {
                return Err(PyLookupError::new_err(format!("no operation {name}")));
            }
        }
        if times == Some(0) || status.is_some_and(|status| !(400..600).contains(&status)) {
            let problem = "times must be at least 1, status an error from 400 to 599";
            return Err(PyValueError::new_err(problem));
        }
        let delay = Duration::try_from_secs_f64(delay)
            .map_err(|problem| PyValueError::new_err(format!("delay: {problem}")))?;
        let fault = InjectedFault { operation, status, times, retry_after, delay, cut };
        self.0.get().with_service(py, |service, _| service.inject_fault(fault))
    }

    /// The calls that were made, as JSON.
    fn calls(&self, py: Python<'_>) -> PyResult<String> {
        let calls = self.0.get().with_service(py, |service, _| service.recorded_calls())?;
        serde_json::to_string(&calls).map_err(|problem| PyValueError::new_err(problem.to_string()))
    }

    /// Sets the clock forward; false where it is the system's.
    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let duration = Duration::try_from_secs_f64(seconds)
            .map_err(|problem| PyValueError::new_err(format!("seconds: {problem}")))?;
        self.0.get().with_service(py, |service, _| service.advance_clock(duration))
    }

    /// Forgets faults and calls.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get().with_service(py, |service, _| service.reset_fault_injection())
    }

    /// What the database holds now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        let taken = self.0.get().with_service(py, |service, _| service.take_snapshot())?;
        taken.map(PySnapshot).map_err(|problem| error::not_started(py, &problem))
    }

    /// Makes the database hold what it held then.
    fn restore(&self, py: Python<'_>, snapshot: &Bound<'_, PySnapshot>) -> PyResult<()> {
        let state = snapshot.get().0.clone();
        let done = self.0.get().with_service(py, |service, runtime| {
            runtime.block_on(service.restore_snapshot(state))
        })?;
        done.map_err(|problem| error::not_started(py, &problem))
    }
}
