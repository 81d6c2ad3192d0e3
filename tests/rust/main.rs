//! The integration tests, one binary so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod agent;
mod allocations;
mod api;
mod cli;
mod engines;
#[path = "../fuzz/mod.rs"]
mod fuzz;
mod gateway;
mod layers;
mod mux;
mod names;
mod policy;
mod protocol;
mod service;
mod source;
mod swallowed_errors;
