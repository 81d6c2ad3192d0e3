//! The bytes of a connection, wherever it goes.

pub use crate::net::ResetOnClose;
pub use crate::net::tls::AsyncReadWrite;

/// A connection to a target.
pub type Io = Box<dyn AsyncReadWrite>;
