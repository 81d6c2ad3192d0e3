//! The integration tests, one binary so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod api;
#[cfg(feature = "service")]
mod cli;
mod layers;
mod names;
#[cfg(feature = "service")]
mod policy;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "service")]
mod tunnel;
