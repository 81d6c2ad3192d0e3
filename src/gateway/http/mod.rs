//! HTTP with visitors, from the first byte of a connection to the last response on it.
//!
//! `server` has HTTP/1.1 spoken with a visitor by `http1_server`, or HTTP/2 by hyper; `connection` brings each request into one form,
//! finds what is served for it, and answers. A request that is only to be carried takes the fast path
//! through `fast_path`. What the gateway has to say itself is an `error_response`.

pub(crate) mod body;
pub(crate) mod body_decoder;
pub(crate) mod body_feed;
pub(crate) mod connection;
pub(crate) mod connection_activity;
pub(crate) mod error_response;
pub(crate) mod fast_path;
pub(crate) mod field_names;
pub(crate) mod flood_guard;
pub(crate) mod forwarded;
pub(crate) mod head;
pub(crate) mod http1_server;
pub(crate) mod node_notice;
pub(crate) mod read_ahead;
pub(crate) mod request_body;
pub(crate) mod request_context;
pub(crate) mod response_body;
pub(crate) mod response_writer;
pub(crate) mod rule_notes;
pub(crate) mod server;
pub(crate) mod stream_executor;
pub(crate) mod stream_timers;
pub(crate) mod upgrade;
pub(crate) mod visitor_stream;
