//! Types and helpers that every crate uses: border types, logging, the fork guard.
//!
//! Text from outside is parsed once, at the border, into a type of [`address`]. Code behind the border receives the types
//! and never parses their text again. [`logging`] makes records of `tracing` events, [`fork`] separates a process from
//! its children, [`files`] writes files that are complete or absent, [`standard_streams`] keeps closed streams from becoming
//! other files, [`thread_runtime`] is a tokio runtime with one thread, and [`tasks`] starts tasks on one that serves.
//!
//! # Invariants
//!
//! - This crate knows no protocol.

#[macro_use]
mod forward;

pub mod address;
pub mod files;
pub mod fork;
mod hex;
mod jitter;
pub mod letters;
pub mod logging;
mod sliding_window;
pub mod standard_streams;
pub mod tasks;
pub mod thread_runtime;

pub use hex::hex;
pub use jitter::random_fraction;
pub use sliding_window::SlidingWindow;
/// For `or_debug!` in other crates.
#[doc(hidden)]
pub use tracing;
