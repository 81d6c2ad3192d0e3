//! The two halves of a connection, whatever it is made of.

use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// The receiving half of a connection.
pub type BoxReader = Pin<Box<dyn AsyncRead + Send>>;
/// The sending half of a connection.
pub type BoxWriter = Pin<Box<dyn AsyncWrite + Send>>;

/// How much a pipe to a local service within the agent holds.
pub(super) const PIPE_BYTES: usize = 64 * 1024;
