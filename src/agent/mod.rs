//! The local side: connects to a service, forwards to local services, captures, replays, and
//! serves the local API.

pub mod capture;
pub mod metrics;
