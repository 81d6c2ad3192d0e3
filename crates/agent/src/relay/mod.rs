//! Carries the bytes of visitors to local services and back.
//!
//! HTTP passes as it is: the relay reads heads and follows the framing of bodies, so that it can
//! count, capture and answer for a local service that is away, but it writes on the bytes that it
//! read. Where the local service speaks HTTP/2, `http2` translates behind all that. Everything else is
//! copied blindly.

mod activity;
mod conditions;
mod copy;
mod dial;
mod exchange;
mod files;
mod http;
mod http2;
mod interception;
mod io;
mod local_reset;
mod media_type;
mod page;
mod quick_ack;
mod relayed_head;
mod rewrite;
mod rules;
mod upstream;
mod websocket;

pub use activity::Activity;
pub use copy::copy_bidirectional;
pub use dial::{ForbiddenAddresses, LocalStream};
pub use http::{HttpForwarder, serve_connection, serve_replay};
pub use io::{BoxReader, BoxWriter};
pub use local_reset::LocalReset;
pub use quick_ack::ResponseWait;
pub use rewrite::HostHeader;
pub use upstream::{AppProtocol, LocalUpstream};
