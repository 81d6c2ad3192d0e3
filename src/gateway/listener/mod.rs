//! Listening: who comes in, by which port.

pub(crate) mod open;
pub(crate) mod trusted_proxies;
