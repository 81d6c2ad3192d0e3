//! Sessions of agents and of nodes, and what decides about them: accounts, reserved names and the cluster.
//!
//! `agents` accepts agents, and keeps their sessions, tunnels and addresses. `cluster` makes the service a node, whose
//! directory knows the tunnels of the others. `accounts` and `domains` answer who a caller or an agent is, and which names
//! it may have; `refusal` and `error` are the reasons for a no.
//!
//! # Invariants
//!
//! - This crate does not know the operations of the management API, nor how configuration is published.

pub mod accounts;
pub mod agents;
pub mod cluster;
pub mod code;
pub mod domains;
pub mod error;
pub mod refusal;

pub use error::Error;
pub use refusal::Refusal;

use ginnel_store as store;
