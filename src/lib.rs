//! Clients for a tunnel service's management and agent APIs, and the system itself.

pub mod api;
#[cfg(feature = "service")]
pub mod cli;
pub mod client;
#[cfg(feature = "service")]
pub mod policy;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "service")]
pub mod service;
