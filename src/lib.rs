//! Clients for a tunnel service's management and agent APIs, and the system itself.
//!
//! # One request, followed through the folders
//!
//! `remote.ip_policies.get(id)` in Python is one line of `python/ginnel/remote/ip_policies.py`,
//! which was generated from one line of `api/remote/ip_policies.rs`. It names the operation to
//! `python/core.rs`, where `python/arguments.rs` makes JSON of the arguments and
//! [`api::encode_arguments`] makes a request of that. [`client`] sends it: a driver, such as
//! `client/blocking.rs`, until `client/attempts.rs` says that the answer is worth returning, over a
//! `client/connection.rs` of `client/pool.rs`; `http1/reader.rs` reads what comes back.
//!
//! At the [`service`], `service/pipeline.rs` checks the request against the same line of the table
//! and calls the handler in `service/handlers/ip_policies.rs`, which reads from `service/store`. The
//! answer becomes a dataclass in `python/results`.
//!
//! # One visitor, followed through the folders
//!
//! A visitor of a tunnel comes in through a listener of `gateway`, if `net` has a place left. The
//! edge finds the route and asks its modules; where there is nothing to ask, `gateway/http/fast_path`
//! takes the request as it is. The target is a tunnel (`service/agents/tunnel.rs`), so a stream is
//! opened in the agent's session ([`mux`]), with a message before it that says whose it is
//! ([`protocol`]). At the [`agent`], `agent/session/requests.rs` finds the tunnel that the stream is for, and
//! `agent/relay` carries the bytes to the local service and back, while `agent/capture` keeps them and
//! `agent/web` shows them.
//!
//! # Who may use whom
//!
//! `python` and `cli` use `client`, `service` and `agent`; `service` uses `gateway`, which knows neither
//! the database nor the management API: `service/publish` compiles what the database says and hands it
//! over. `gateway` uses `policy`, which `python` and `cli` try as well; `service` and `agent` share
//! `protocol`, which speaks over `mux`. All of them may use `api`, `http1` and `net`, and
//! `client` asks the dialler of `net`. What keeps
//! connections for another request, in `client`, `gateway` and `agent`, asks `reuse`; `client` and `agent`
//! read coded bodies with `coding`. `net` and `settings` use `api`, and `policy` uses `http1`; `cli` and
//! `service` use `settings`; `gateway`, `service` and `agent` count with `metrics`, and the last two show
//! that with `admin`, which listens with `net`, and show pages with `web`; `net` uses `http1` as well. `api`,
//! `coding`, `http1`, `metrics`, `mux`, `reuse` and `web` use none of the others. Every folder may tell `logging` what happens,
//! which uses nothing but what a process must not share with its forks (`fork.rs`), and every folder parses names and
//! addresses with `base`, which uses nothing.
//! `tests/rust/layers.rs` holds the code to that.

#[cfg(feature = "service")]
#[macro_use]
mod forward;

#[cfg(feature = "service")]
mod admin;
#[cfg(feature = "service")]
pub mod agent;
pub mod api;
pub mod base;
#[cfg(feature = "service")]
pub mod cli;
pub mod client;
mod coding;
#[cfg(feature = "service")]
mod files;
mod fork;
/// Targets for fuzzers, which see what is private here.
#[cfg(all(any(test, fuzzing), feature = "service"))]
#[path = "../tests/fuzz/mod.rs"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub mod fuzz;
#[cfg(feature = "service")]
pub mod gateway;
mod http1;
mod logging;
#[cfg(feature = "service")]
mod metrics;
#[cfg(feature = "service")]
pub mod mux;
mod net;
#[cfg(feature = "service")]
pub mod policy;
#[cfg(feature = "service")]
pub mod protocol;
#[cfg(feature = "python")]
mod python;
mod reuse;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "service")]
pub mod settings;
#[cfg(feature = "service")]
mod thread_runtime;
#[cfg(feature = "service")]
mod web;

/// The blocks of code in the documentation, so that they run as tests.
#[cfg(all(doctest, feature = "service"))]
#[doc = include_str!("../docs/reference/rust.md")]
mod documentation {}
