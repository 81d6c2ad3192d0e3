//! The messages between agent and service, in the streams of a [`MuxSession`](crate::MuxSession).
//!
//! The first four bytes of a stream say what it is ([`stream_kind`]): a call with its answer ([`rpc`],
//! made of [`message`]s), a proxied connection ([`proxy`]), or the heartbeat.

pub mod json_object;
pub mod message;
pub mod proxy;
pub mod rpc;
pub mod rules_header;
pub mod stream_kind;

pub use stream_kind::read_kind;
