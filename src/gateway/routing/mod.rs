//! What a public address leads to: hosts, virtual hosts with their routes, backends, targets.
//!
//! Edges are handed in as virtual hosts; agents' own addresses are made from an `endpoint_spec`.

pub(crate) mod agent_return;
pub(crate) mod backend;
mod bind;
pub(crate) mod endpoint;
mod endpoint_login;
mod endpoint_modules;
pub(crate) mod endpoint_spec;
pub(crate) mod hosts;
pub(crate) mod internal;
pub(crate) mod target;
pub(crate) mod virtual_host;
