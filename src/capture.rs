//! Captured bodies, as Python reads them.

use std::borrow::Cow;

use pyo3::prelude::*;

use ginnel_agent::{MaskedBody, MaskedPart};
use ginnel_api::mask::CallMask;
use ginnel_content as content;

use super::secrets::{call_side, shorten_mask};

/// A body as people read it, without masks.
#[pyclass(frozen, module = "ginnel._native", name = "ReadableBody")]
pub(super) struct PyReadableBody(content::ReadableBody<'static>);

/// A body, or its parts, without secrets.
#[pyclass(frozen, get_all, module = "ginnel._native", name = "MaskedBody")]
pub(super) struct PyMaskedBody {
    text: Option<String>,
    parts: Vec<Py<PyMaskedPart>>,
    is_whole: bool,
}

/// A part of a body without secrets.
#[pyclass(frozen, get_all, module = "ginnel._native", name = "MaskedPart")]
pub(super) struct PyMaskedPart {
    headers: Vec<(String, String)>,
    text: Option<String>,
    media_type: String,
    size: usize,
}

/// Reads a body, up to `most` bytes without its content codings. `is_cut` is true if not all of it was captured.
#[pyfunction]
pub(super) fn read_body(
    py: Python<'_>,
    content_type: &str,
    content_encoding: Vec<String>,
    body: &[u8],
    is_cut: bool,
    most: usize,
) -> PyReadableBody {
    let head = content::BodyHead {
        content_type,
        content_encoding: content_encoding.iter().map(String::as_bytes).collect(),
        is_cut,
        ..content::BodyHead::default()
    };
    py.detach(|| PyReadableBody(content::ReadableBody::read(&head, body, most).into_owned()))
}

#[pymethods]
impl PyReadableBody {
    /// The bytes without their content codings.
    #[getter]
    fn content(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.0.bytes())
    }

    /// The text. Bytes that are not text are decoded too.
    #[getter]
    fn text(&self) -> Cow<'_, str> {
        self.0.text()
    }

    /// The kind, such as `json`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().name()
    }

    /// The charset of the text.
    #[getter]
    fn charset(&self) -> &'static str {
        self.0.charset().name()
    }

    /// Remarks about the reading.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// Returns the names and values of a form, or `None` for other bodies.
    fn form(&self) -> Option<Vec<(String, String)>> {
        self.0.form()
    }

    /// The body without secrets. With method and target, the operation tables are asked as well.
    fn masked(
        &self,
        py: Python<'_>,
        method: &str,
        target: &str,
        is_response: bool,
    ) -> PyResult<PyMaskedBody> {
        let call = CallMask::for_request(method, target);
        let side = call_side(is_response);
        let masked = py.detach(|| MaskedBody::new(&self.0, &call, side, false));
        let parts = masked.parts.into_iter().map(|part| Py::new(py, PyMaskedPart::from(part)));
        Ok(PyMaskedBody {
            text: masked.text.as_deref().map(shorten_mask),
            parts: parts.collect::<PyResult<_>>()?,
            is_whole: masked.is_whole,
        })
    }
}

impl From<MaskedPart> for PyMaskedPart {
    fn from(part: MaskedPart) -> Self {
        let short = |(name, value): (String, String)| (name, shorten_mask(&value));
        Self {
            headers: part.headers.into_iter().map(short).collect(),
            text: part.text.as_deref().map(shorten_mask),
            media_type: part.media_type,
            size: part.size,
        }
    }
}
