//! Large answers, decoded in slices: an event loop does something else in between.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::json::{JsonReader, not_utf8};
use super::long_texts::LongTexts;
use super::page::PageTree;
use super::plan::ClassPlan;
use super::problem::{DecodeError, DecodeResult, JsonResult};
use super::time_budget::TimeBudget;
use super::tree::JsonTree;
use super::{into_value_error, plan_of, read_object};

/// From this size on a body is worth more than one slice: below it, all of it takes about as long.
pub(crate) const MIN_SLICED_BYTES: usize = 256 << 10;
/// How many bytes are held against UTF-8 between two looks at the clock.
const UTF8_CHECK_BYTES: usize = 1 << 20;

/// What a body stands for.
pub(crate) enum DecodeTarget {
    /// An object; it is decoded in one slice.
    One(Arc<ClassPlan>),
    /// A page of a list, whose items are in a field.
    Page {
        /// The field of the items.
        field: Cow<'static, str>,
        /// How an item is made.
        plan: Arc<ClassPlan>,
    },
    /// Any JSON.
    Free,
}

/// A body that is decoded in slices.
///
/// A slice ends after an item of a page, after a value of free JSON, or within a long text; one item is
/// never divided otherwise. The collector of garbage waits for the end of a slice: what is made here is no
/// garbage, and a collection of all objects may take longer than the slice.
#[pyclass(module = "ginnel._native")]
pub(crate) struct BodyDecoder {
    body: Bytes,
    /// How much of the body is known to be UTF-8.
    checked: usize,
    long_texts: LongTexts,
    pause: (usize, usize),
    state: DecoderState,
}

enum DecoderState {
    One(Arc<ClassPlan>),
    Page(PageTree),
    Free(JsonTree),
    Done,
}

#[pymethods]
impl BodyDecoder {
    /// A body that is a page of instances of `class` in `field`, one of them, or any JSON.
    #[new]
    #[pyo3(signature = (body, class = None, field = None))]
    fn decoder_of(
        body: &Bound<'_, pyo3::types::PyBytes>,
        class: Option<&Bound<'_, PyAny>>,
        field: Option<String>,
    ) -> PyResult<Self> {
        let target = match (class, field) {
            (None, None) => DecodeTarget::Free,
            (Some(class), None) => DecodeTarget::One(plan_of(class)?),
            (Some(class), Some(field)) => {
                DecodeTarget::Page { field: field.into(), plan: plan_of(class)? }
            }
            (None, Some(_)) => return Err(PyTypeError::new_err("a field of which class?")),
        };
        Ok(Self::new(body.py(), Bytes::copy_from_slice(body.as_bytes()), target))
    }

    /// From this size on a body is worth slices.
    #[classattr]
    const MIN_BYTES: usize = MIN_SLICED_BYTES;

    /// Decodes for about so many seconds: `(True, result)` when that is all, else `(False, None)`.
    #[pyo3(name = "advance")]
    fn advance_for<'py>(
        &mut self,
        py: Python<'py>,
        seconds: f64,
    ) -> PyResult<(bool, Option<Bound<'py, PyAny>>)> {
        let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        let result = self.advance(py, duration).map_err(into_value_error)?;
        Ok((result.is_some(), result))
    }

    #[allow(clippy::missing_errors_doc)]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }

    fn __clear__(&mut self) {
        self.state = DecoderState::Done;
    }
}

impl BodyDecoder {
    pub(crate) fn new(py: Python<'_>, body: Bytes, target: DecodeTarget) -> Self {
        let state = match target {
            DecodeTarget::One(plan) => DecoderState::One(plan),
            DecodeTarget::Page { field, plan } => {
                DecoderState::Page(PageTree::new(py, field, plan))
            }
            DecodeTarget::Free => DecoderState::Free(JsonTree::default()),
        };
        Self { body, checked: 0, long_texts: LongTexts::default(), pause: (0, 0), state }
    }

    /// Decodes for about that long; gives the result once it is complete, as `one`, `page` and
    /// `free` do. After a result or a problem there is nothing left to do.
    pub(crate) fn advance<'py>(
        &mut self,
        py: Python<'py>,
        duration: Duration,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        let advanced = self.decode_slice(py, &mut TimeBudget::for_duration(duration));
        if !matches!(advanced, Ok(None)) {
            self.state = DecoderState::Done;
        }
        advanced
    }

    fn decode_slice<'py>(
        &mut self,
        py: Python<'py>,
        budget: &mut TimeBudget,
    ) -> DecodeResult<Option<Bound<'py, PyAny>>> {
        if !self.check_utf8(budget)? {
            return Ok(None);
        }
        let _paused = PausedCollector::new(py);
        // SAFETY: all of it was held against UTF-8, and nothing changes it.
        let text = unsafe { std::str::from_utf8_unchecked(&self.body) };
        if !self.long_texts.advance(py, text, budget)? {
            return Ok(None);
        }
        let mut json = JsonReader::resume_at(text, self.pause, &self.long_texts);
        let result = match &mut self.state {
            DecoderState::One(plan) => Some(read_object(py, &mut json, plan)?),
            DecoderState::Page(page) => match page.advance(py, &mut json, budget)? {
                Some(page) => Some(page.into_pyobject(py)?.into_any()),
                None => None,
            },
            DecoderState::Free(tree) => tree.advance(py, &mut json, budget)?,
            DecoderState::Done => return Err(finished_error()),
        };
        if result.is_some() {
            json.expect_end()?;
        }
        self.pause = json.resume_point();
        Ok(result)
    }

    /// Shows the objects of a result that is not complete to the collector of garbage.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.state {
            DecoderState::One(_) | DecoderState::Done => Ok(()),
            DecoderState::Page(page) => page.traverse(visit),
            DecoderState::Free(tree) => tree.traverse(visit),
        }
    }

    /// Holds the body against UTF-8, piece by piece; true once that is done.
    fn check_utf8(&mut self, budget: &mut TimeBudget) -> JsonResult<bool> {
        while self.checked < self.body.len() {
            let rest = &self.body[self.checked..];
            let piece = &rest[..rest.len().min(UTF8_CHECK_BYTES)];
            self.checked += match std::str::from_utf8(piece) {
                Ok(_) => piece.len(),
                // A character that goes on in the next piece.
                Err(error) if error.error_len().is_none() && piece.len() < rest.len() => {
                    error.valid_up_to()
                }
                Err(error) => return Err(not_utf8(self.checked + error.valid_up_to())),
            };
            if self.checked < self.body.len() && budget.is_late(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn finished_error() -> DecodeError {
    PyRuntimeError::new_err("the body was decoded already").into()
}

/// The collector of garbage at rest, until this is dropped.
struct PausedCollector(bool);

impl PausedCollector {
    /// Nothing that runs until it is dropped may give the interpreter's lock away.
    fn new(_: Python<'_>) -> Self {
        // SAFETY: whoever has the token holds the lock.
        Self(unsafe { ffi::PyGC_Disable() } == 1)
    }
}

impl Drop for PausedCollector {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: as when it was made.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
