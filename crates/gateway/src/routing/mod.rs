//! What a public address leads to: hosts, virtual hosts with their routes, backends, targets.
//!
//! Edges are handed in as virtual hosts; agents' own addresses are made from an `endpoint_spec`.

pub mod agent_return;
pub mod backend;
pub mod endpoint;
pub mod endpoint_modules;
pub mod endpoint_spec;
pub mod hosts;
pub mod internal;
pub mod remote_hosts;
pub mod route;
pub mod route_table;
pub mod virtual_host;
