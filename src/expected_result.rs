//! What a call returns for the response that it gets.

use std::sync::Arc;

use pyo3::prelude::*;

use ginnel_api::{Info, Output};
use ginnel_client::ApiResponse;

use super::results::{self, BodyDecoder, ClassPlan, DecodeTarget, MIN_SLICED_BYTES};
use super::{error, raw_response};

/// What becomes of a response.
pub(super) struct ExpectedResult {
    output: ExpectedOutput,
    /// Whether it is returned as it came, and read later.
    is_raw: bool,
}

enum ExpectedOutput {
    /// The output of an operation; the plan is missing where there is none.
    Of(&'static Info, Option<Arc<ClassPlan>>),
    /// Any JSON.
    Free,
}

impl ExpectedResult {
    /// The output of an operation; the plan is missing where there is none.
    pub(super) fn for_operation(
        info: &'static Info,
        plan: Option<Arc<ClassPlan>>,
        is_raw: bool,
    ) -> Self {
        Self { output: ExpectedOutput::Of(info, plan), is_raw }
    }

    /// Any JSON.
    pub(super) fn any_json(is_raw: bool) -> Self {
        Self { output: ExpectedOutput::Free, is_raw }
    }

    /// The operation that was called, if it was one.
    pub(super) fn operation(&self) -> Option<&'static Info> {
        match self.output {
            ExpectedOutput::Of(info, _) => Some(info),
            ExpectedOutput::Free => None,
        }
    }

    /// What a call returns for an answer that was accepted.
    pub(super) fn convert_response(
        self,
        py: Python<'_>,
        answer: ApiResponse,
    ) -> PyResult<Bound<'_, PyAny>> {
        if self.is_raw {
            raw_response::new_raw_response(py, answer, self)
        } else {
            self.read_response(py, &answer)
        }
    }

    /// An answer that was accepted as what was expected, or the exception that it stands for.
    pub(super) fn read_response<'py>(
        &self,
        py: Python<'py>,
        answer: &ApiResponse,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = answer.body();
        let read = match &self.output {
            ExpectedOutput::Free if body.is_empty() => Ok(py.None().into_bound(py)),
            ExpectedOutput::Free => results::decode_any(py, body),
            ExpectedOutput::Of(info, Some(plan)) => match info.output {
                Output::Page { field, .. } => results::decode_page(py, body, field, plan)
                    .and_then(|page| Ok(page.into_pyobject(py)?.into_any())),
                _ => results::decode_object(py, body, plan),
            },
            ExpectedOutput::Of(_, None) => Ok(py.None().into_bound(py)),
        };
        read.map_err(|problem| error::decode_error(py, answer, problem))
    }

    /// How to read an answer in slices; none where one slice does.
    pub(super) fn slice_decoder(
        &self,
        py: Python<'_>,
        answer: &mut ApiResponse,
    ) -> Option<BodyDecoder> {
        if self.is_raw || answer.body().len() < MIN_SLICED_BYTES {
            return None;
        }
        let target = match &self.output {
            ExpectedOutput::Free => DecodeTarget::Free,
            ExpectedOutput::Of(info, Some(plan)) => match info.output {
                Output::Page { field, .. } => {
                    DecodeTarget::Page { field: field.into(), plan: plan.clone() }
                }
                _ => DecodeTarget::One(plan.clone()),
            },
            ExpectedOutput::Of(_, None) => return None,
        };
        Some(BodyDecoder::new(py, answer.share_body(), target))
    }
}
