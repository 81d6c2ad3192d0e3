//! Listeners: how many connections are taken, how long one may be silent, who may not be reached.
//!
//! Every listener of the service and of the agent takes its connections with [`accept`], which asks
//! a [`ConnectionLimit`]; how large that is follows from the file descriptors that the process may
//! have ([`descriptors`]). [`private`] knows the listeners that nothing public may lead to, and
//! [`certificate`] reads what listeners with TLS show.

mod accept;
pub(crate) mod certificate;
mod connection_limit;
pub(crate) mod descriptors;
pub(crate) mod private;

pub(crate) use accept::{Connection, FIRST_BYTE_TIMEOUT, accept, first_byte};
pub use connection_limit::Refusals;
pub(crate) use connection_limit::{ConnectionCaps, ConnectionLimit, Permit, Source};
