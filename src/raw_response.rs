//! Answers as they came, for whoever asks for them; see `ginnel/_core/raw_response.py`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use ginnel_client::ApiResponse;

use super::error;
use super::expected_result::ExpectedResult;

/// Reads an answer as what its operation returns.
#[pyclass(frozen, module = "ginnel._native")]
pub(super) struct ResponseParser {
    answer: ApiResponse,
    expected: ExpectedResult,
}

#[pymethods]
impl ResponseParser {
    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.expected.read_response(py, &self.answer)
    }
}

/// An answer as it came.
pub(super) fn new_raw_response(
    py: Python<'_>,
    answer: ApiResponse,
    expected: ExpectedResult,
) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let import = || {
        let module = py.import(intern!(py, "ginnel._core.raw_response"))?;
        Ok::<_, PyErr>(module.getattr(intern!(py, "RawResponse"))?.unbind())
    };
    let class = CLASS.get_or_try_init(py, import)?.bind(py);
    class.call1((
        answer.status().as_u16(),
        error::headers_dict(py, &answer.headers())?,
        PyBytes::new(py, answer.body()),
        answer.elapsed.as_secs_f64(),
        answer.attempts,
        answer.method,
        answer.url(),
        ResponseParser { answer, expected },
    ))
}
