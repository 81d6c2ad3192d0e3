//! Messages of HTTP/1.1, as everybody here follows them: one grammar for where a message ends.
//!
//! `message_head` reads all heads, and `write` writes them. `body` knows where a body ends, `chunks`
//! reads its chunks, and `length` the fields of a head that say which of them it is. `hop_by_hop` knows
//! which fields concern only one connection, `forwarded` those that proxies add, `forwarded_field` reads `Forwarded`, `identity` those that say
//! who has logged in, `retry_after` when to come again, `names` which fields CGI takes for one, `media_type` reads `Content-Type`, and `lists` reads all values that are lists.
//!
//! `coding` removes content codings from whole bodies, and `coding_remover` from bodies on their way. `representation` owns the fields that describe the bytes of a body, for all code that changes a body.
//!
//! `response_head` finds the final head of a response behind its interim ones, for gateway, agent and
//! client. `read_room` knows how much room the next read of a connection gets.
//!
//! With these `reader` reads whole responses (`response`), and `request` follows the requests of a
//! connection; `strict` puts that between a socket and hyper, which is more lenient and reads for the
//! APIs. `websocket` knows where a close frame fits. No I/O but in `strict` and `websocket`.
//!
//! # Invariants
//!
//! - The readers and writers of messages do no I/O.

mod body;
mod chunks;
pub mod coding;
mod coding_remover;
mod forwarded;
mod forwarded_field;
mod hop_by_hop;
mod identity;
mod length;
mod lists;
mod media_type;
mod message_head;
mod names;
mod read_room;
mod reader;
mod representation;
mod request;
mod response;
mod response_head;
mod retry_after;
pub mod reuse;
mod strict;
mod target;
mod websocket;
mod write;

pub use body::Body;
pub use chunks::FramingError;
pub use coding_remover::CodingRemover;
pub use forwarded::{CDN_LOOP, FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, is_forwarded};
pub use forwarded_field::{ForwardedElement, ForwardedNode, forwarded_elements};
pub use hop_by_hop::{
    ConnectionOptions, HTTP2_SETTINGS, is_framing, is_hop_by_hop, may_be_named, may_trail,
    strip_hop_by_hop, strip_named,
};
pub use identity::{is_identity, strip_identity};
pub use length::BodyLength;
pub use lists::{
    cookie_pairs, cookie_text, elements_of, has_token, is_proper_upgrade, list_elements,
    proper_upgrades, split_outside_quotes, trim_blanks,
};
pub use media_type::{MediaType, is_json_lines, media_type_in, media_type_parameters};
pub use message_head::{
    HeadError, HeadField, HeadLimits, HeadLine, MAX_HEAD_BYTES, MAX_HEAD_FIELDS,
    MAX_RELAYED_HEAD_BYTES, RequestHead, ResponseHead, after_first_line, fields_in, head_lines,
    head_size, header_list_size, may_end_head, read_fields, read_request, read_request_within,
    read_response,
};
pub use names::{SpelledValues, is_cgi_twin, is_same_for_cgi};
pub use read_room::ReadRoom;
pub use reader::{ResponseError, ResponseReader};
pub use representation::{
    RepresentationChange, add_vary, change_representation, describes_bytes, has_content,
    remove_digests, restore_strong_etags, weaken_etag,
};
pub use request::Expects;
pub use response::Response;
pub use response_head::{ExpectedResponse, HeadProgress, ResponseGrammar, ResponseHeadReader};
pub use retry_after::retry_after;
pub use strict::StrictStream;
pub use target::{RawTarget, read_target, request_query, request_target};
pub use websocket::{FrameBoundary, FrameHead, FramePart, GoingAway};
pub use write::{
    CHUNKED, CONTINUE, HOLD_NOTICE, HeadWriter, LAST_CHUNK, LINE_END, write_chunk,
    write_chunk_size, write_last_chunk,
};
