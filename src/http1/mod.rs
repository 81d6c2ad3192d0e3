//! Messages of HTTP/1.1, as everybody here follows them: one grammar for where a message ends.
//!
//! `body` knows where a body ends, `chunks` reads its chunks, and `length` the fields of a head that
//! say which of them it is. `head` reads heads, and `reader` whole answers. `request` and `response` follow whole connections with these, and
//! `strict` puts that between a socket and a parser that is more lenient. `websocket` knows where a
//! close frame fits. No I/O but in `strict` and `websocket`.

mod body;
mod chunks;
#[cfg(feature = "service")]
mod head;
mod length;
mod reader;
#[cfg(feature = "service")]
mod request;
#[cfg(feature = "service")]
mod strict;
#[cfg(feature = "service")]
mod websocket;

pub use body::Body;
pub use chunks::FramingError;
#[cfg(feature = "service")]
pub use head::{
    HeadError, HeadField, MAX_HEAD_BYTES, RequestHead, ResponseHead, may_end_head, read_fields,
    read_request, read_response,
};
pub use length::BodyLength;
pub use reader::{Response, ResponseError, ResponseReader};
#[cfg(feature = "service")]
pub use request::Expects;
#[cfg(feature = "service")]
pub use strict::StrictStream;
#[cfg(feature = "service")]
pub use websocket::GoingAway;

/// The longest line of a head, in bytes; the parsers behind give up before.
const MAX_LINE_BYTES: usize = 256 << 10;
