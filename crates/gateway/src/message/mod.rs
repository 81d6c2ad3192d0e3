//! Requests and responses on their way: heads, bodies, errors, and what a request meets.
//!
//! Everything else in the crate uses this folder, which uses none of it: routing, modules, upstreams, logins and
//! the server are unknown here. A `request_context` is the state of one request; a response of the gateway
//! itself is an `error_response`; `events` reports how each request ended.

pub mod body;
pub mod body_decoder;
pub mod body_feed;
mod client_certificate;
pub mod connection_activity;
pub mod error_response;
pub mod events;
pub mod field_names;
pub mod forwarded;
pub mod forwarded_head;
pub mod http2_framing;
pub mod metered;
pub mod node_notice;
pub mod read_ahead;
mod replaced_body;
pub mod request_body;
pub mod request_context;
pub mod request_services;
pub mod response_body;
pub mod response_compression;
pub mod rule_notes;
pub mod stream_timers;
pub mod upgrade;
pub mod upstream_wait;
pub mod variables;
pub mod visitor;
pub mod visitor_stream;

use std::pin::Pin;

/// A future that can be kept behind a trait.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
