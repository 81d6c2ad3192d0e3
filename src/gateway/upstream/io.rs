//! The bytes of a connection, wherever it goes.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that can be read and written.
pub trait AsyncReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncReadWrite for T {}

/// A connection to a target.
pub type Io = Box<dyn AsyncReadWrite>;
