//! Captured bodies, as Python reads them.

use std::borrow::Cow;

use pyo3::prelude::*;

use crate::agent::capture::{End, decode};

/// A body without its content codings, up to `most` bytes, and how the reading ended: `whole`,
/// `longer`, `cut` or `damaged`; none where a coding is not known.
#[pyfunction]
pub(super) fn unpack<'p>(
    py: Python<'p>,
    encoding: &str,
    body: &[u8],
    most: usize,
) -> Option<(Cow<'p, [u8]>, &'static str)> {
    let decoded = py.detach(|| decode(encoding, body, most))?;
    let end = match decoded.end {
        End::Whole => "whole",
        End::Longer => "longer",
        End::Cut => "cut",
        End::Damaged => "damaged",
    };
    Some((Cow::Owned(decoded.bytes), end))
}
