//! Clients for a tunnel service's management and agent APIs, and the system itself.

pub mod api;
pub mod client;
