//! The integration tests, one binary so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod agent;
#[cfg(feature = "service")]
mod allocations;
mod api;
#[cfg(feature = "service")]
mod cli;
#[cfg(feature = "service")]
mod engines;
#[cfg(feature = "service")]
mod gateway;
mod layers;
#[cfg(feature = "service")]
mod mux;
mod names;
#[cfg(feature = "service")]
mod policy;
#[cfg(feature = "service")]
mod protocol;
#[cfg(feature = "service")]
mod service;
mod swallowed_errors;
