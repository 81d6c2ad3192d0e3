//! Hands log records to Python, which asks for them: no thread of Rust waits for the interpreter's lock
//! to tell something. `ginnel/_core/logs.py` gives them to the loggers.

use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{IntoPyObjectExt, intern};

use ginnel_api::mask;
use ginnel_base::logging::{self, LogLevel, LogRecord, LogValue, TARGETS};

use super::exit::CallGuard;

/// The levels of Python's `logging`, the highest first; below `DEBUG` it has none with a name.
const LEVELS: [(LogLevel, i64); 5] = [
    (LogLevel::Error, 40),
    (LogLevel::Warn, 30),
    (LogLevel::Info, 20),
    (LogLevel::Debug, 10),
    (LogLevel::Trace, 5),
];

/// The parts of the code that have a logger each, `ginnel.` and this.
#[pyfunction]
pub(super) fn log_targets() -> Vec<&'static str> {
    TARGETS.to_vec()
}

/// Sets the levels of Python's `logging` from which on records are made, one for each target.
#[pyfunction]
pub(super) fn set_log_levels(levels: Vec<i64>) -> PyResult<()> {
    let levels: Vec<_> = levels.into_iter().map(level_from_number).collect();
    let levels = levels.try_into().map_err(|_| PyValueError::new_err("one level per target"))?;
    logging::set_levels(&levels);
    Ok(())
}

/// What is told where a logger takes records from a number on.
fn level_from_number(least: i64) -> LogLevel {
    let enabled = LEVELS.iter().rev().find(|(_, number)| *number >= least);
    enabled.map_or(LogLevel::Off, |(level, _)| *level)
}

/// Takes the records that wait; waits as many seconds for the first. Each is the target, the level, the
/// time, the line and the fields.
#[pyfunction]
pub(super) fn take_log_records<'py>(
    py: Python<'py>,
    timeout: Option<f64>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let guard = CallGuard::new(py);
    let records = match timeout {
        None => logging::take_records(None),
        Some(seconds) => {
            let timeout = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            guard.run_detached(|| logging::take_records(Some(timeout)))
        }
    };
    records.into_iter().map(|record| record_to_python(py, record.mask_texts(mask::text))).collect()
}

/// Has a thread that waits in [`take_log_records`] return.
#[pyfunction]
pub(super) fn wake_log_reader() {
    logging::wake_readers();
}

fn record_to_python(py: Python<'_>, record: LogRecord) -> PyResult<Bound<'_, PyAny>> {
    let fields = PyDict::new(py);
    for (name, value) in record.fields.iter() {
        match value {
            LogValue::Text(text) => fields.set_item(name, text)?,
            LogValue::Integer(number) => fields.set_item(name, number)?,
            LogValue::Float(number) => fields.set_item(name, number)?,
            LogValue::Flag(flag) => fields.set_item(name, flag)?,
        }
    }
    let level = LEVELS.iter().find(|(level, _)| *level == record.level);
    let level = level.map_or(0, |(_, number)| *number);
    let time = record.time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    (record.target, level, time, record.to_line(), fields).into_bound_py_any(py)
}

/// Gives the records that were made on the way of a call to the loggers, where no thread does.
///
/// What goes wrong in a handler is the handler's to tell.
pub(super) fn deliver_records(py: Python<'_>) -> PyResult<()> {
    if !logging::has_records() {
        return Ok(());
    }
    py.import(intern!(py, "ginnel._core.logs"))?.call_method0(intern!(py, "deliver")).map(drop)
}
