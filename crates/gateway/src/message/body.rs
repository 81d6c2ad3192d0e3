//! What bodies of requests and of responses have in common.

use bytes::Bytes;
use hyper::body::SizeHint;

/// Why a body ends early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// How long a body is with so many bytes in front.
pub(super) fn size_hint_after(bytes: Option<&Bytes>, rest: SizeHint) -> SizeHint {
    let first = bytes.map_or(0, Bytes::len) as u64;
    rest.exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(first + rest))
}
