//! Connections that others open: how many are taken, and how long one may be silent.
//!
//! Every listener of the service and of the agent takes its connections with [`accept`], which asks
//! a [`ConnectionLimit`]; how large that is follows from the file descriptors that the process may
//! have ([`descriptors`]).

mod accept;
mod connection_limit;
pub(crate) mod descriptors;

pub(crate) use accept::{Connection, FIRST_BYTE_TIMEOUT, accept, first_byte};
pub use connection_limit::Refusals;
pub(crate) use connection_limit::{ConnectionCaps, ConnectionLimit, Permit, Source};
