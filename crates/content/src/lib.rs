//! Captured messages made readable, and sent again.
//!
//! [`ReadableBody`] is the one reading of a captured body. It removes content codings ([`coding`]), finds the charset
//! ([`charset`]), splits forms ([`form`], [`multipart`]) and finds the kind of the body ([`BodyKind`]). The inspector, the
//! agent API, exports, the filter, the cards in notebooks, and `text` and `json()` of captured messages use it, so that a
//! body is the same everywhere.
//!
//! [`OutgoingRequest`] is the one writer of requests: replays, edited and composed requests, and copies are framed there.
//! [`snippet`] writes such a request for a shell, for Python and as a URL.
//!
//! # Invariants
//!
//! - This crate does no I/O.
//! - It masks nothing. Surfaces that hide secrets pass the readable text to the masker of `ginnel_api`.
//! - No input is an error: a body that cannot be read stays as it is, and [`ReadableBody`] has the reason.

pub mod charset;
pub mod coding;
mod declared_charset;
mod disposition;
mod encoded_words;
pub mod form;
mod head_text;
mod kind;
pub mod multipart;
pub mod outgoing;
mod readable;
pub mod snippet;
mod zstd;

pub use charset::{Charset, UnencodableText};
pub use coding::{DecodedContent, UnreadCoding, UnreadReason, remove_codings};
pub use ginnel_http1::coding::DecodedEnd;
pub use kind::BodyKind;
pub use multipart::{BodyPart, Multipart, split_parts};
pub use outgoing::{OutgoingRequest, RequestConnection};
pub use readable::{BodyHead, ReadableBody};

/// The largest number of bytes that a surface reads of a body without its codings, unless it has a limit of its own.
pub const MAX_DECODED_BYTES: usize = 8 << 20;
