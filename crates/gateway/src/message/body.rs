//! What bodies of requests and of responses have in common.

use bytes::Bytes;
use hyper::body::SizeHint;

/// Why a body ends early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the length of a body with these pieces in front of the rest.
pub(super) fn size_hint_after<'b>(
    pieces: impl IntoIterator<Item = &'b Bytes>,
    rest: SizeHint,
) -> SizeHint {
    let first: usize = pieces.into_iter().map(Bytes::len).sum();
    rest.exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(first as u64 + rest))
}
