//! The bytes of a connection, wherever it goes.

pub use ginnel_net::ResetOnClose;
pub use ginnel_net::tls::AsyncReadWrite;

/// A connection to a target.
pub type Io = Box<dyn AsyncReadWrite>;
