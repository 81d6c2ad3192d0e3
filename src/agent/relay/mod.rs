//! Carries the bytes of visitors to local services and back.
//!
//! HTTP passes as it is: the relay reads heads and follows the framing of bodies, so that it can
//! count, capture and answer for a local service that is away, but it writes on the bytes that it
//! read. Where the local service speaks HTTP/2, `http2` translates behind all that. Everything else is
//! copied blindly.

mod activity;
mod copy;
mod dial;
mod exchange;
mod files;
mod head;
mod http;
mod http2;
mod page;
mod prompt;
mod rewrite;
mod upstream;

pub use activity::Activity;
pub use copy::copy;
pub use dial::{Closed, Connected};
pub use http::{Front, once, serve};
pub(super) use page::escape;
pub use prompt::Awaited;
pub use rewrite::HostHeader;
pub use upstream::{Address, AppProtocol, Upstream};

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// The receiving half of a connection.
pub type Reader = Pin<Box<dyn AsyncRead + Send>>;
/// The sending half of a connection.
pub type Writer = Pin<Box<dyn AsyncWrite + Send>>;

/// How much a pipe to a local service within the agent holds.
const PIPE: usize = 64 * 1024;
