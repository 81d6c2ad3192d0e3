//! The local side: connects to a service, forwards to local services, captures, replays, and
//! serves the local API.

pub mod capture;
mod error;
pub mod metrics;
pub mod relay;
mod tls;

pub use error::Error;
pub use tls::Trust;
