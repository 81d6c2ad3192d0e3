//! Captured bodies, as Python reads them.

use std::borrow::Cow;

use pyo3::prelude::*;

use crate::coding::{End, decode_some};

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
        End::Whole => "whole",
        End::Longer => "longer",
        End::Cut => "cut",
        End::Damaged => "damaged",
    };
    Some((Cow::Owned(decoded), end))
}
