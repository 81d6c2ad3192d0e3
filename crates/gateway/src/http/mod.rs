//! HTTP with visitors, from the first byte of a connection to the last response on it.
//!
//! `server` has HTTP/1.1 spoken with a visitor by `http1_server`, or HTTP/2 by hyper; `connection` brings each request into one form,
//! finds what is served for it, and answers. A request that is only to be carried takes the fast path
//! through `fast_path`. What the gateway has to say itself is an `error_response`.

pub mod body;
pub mod body_decoder;
pub mod body_feed;
pub mod connection;
pub mod connection_activity;
pub mod error_response;
pub mod fast_path;
pub mod field_names;
pub mod flood_guard;
pub mod forwarded;
pub mod head;
pub mod http1_server;
pub mod node_notice;
pub mod read_ahead;
pub mod request_body;
pub mod request_context;
pub mod response_body;
pub mod response_writer;
pub mod rule_notes;
pub mod server;
pub mod stream_executor;
pub mod stream_timers;
pub mod upgrade;
pub mod visitor_stream;
