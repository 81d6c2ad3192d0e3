//! Captured bodies, as Python reads them.

use std::borrow::Cow;

use pyo3::prelude::*;

use ginnel_http1::coding::{DecodedEnd, decode_some};

/// A body without its content codings, up to `most` bytes, and how the reading ended: `whole`,
/// `longer`, `cut` or `damaged`; none where a coding is not known.
#[pyfunction]
pub(super) fn unpack<'p>(
    py: Python<'p>,
    encoding: &str,
    body: &[u8],
    most: usize,
) -> Option<(Cow<'p, [u8]>, &'static str)> {
    let (decoded, end) = py.detach(|| decode_some(encoding, body, most))?;
    let end = match end {
        DecodedEnd::Whole => "whole",
        DecodedEnd::Longer => "longer",
        DecodedEnd::Cut => "cut",
        DecodedEnd::Damaged => "damaged",
    };
    Some((Cow::Owned(decoded), end))
}
