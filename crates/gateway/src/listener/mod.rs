//! Listening: who comes in, by which port.

pub mod open;
pub mod trusted_proxies;
