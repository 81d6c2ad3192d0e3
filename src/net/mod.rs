//! Listeners: how many connections are taken, how long one may be silent, who may not be reached.
//!
//! Every listener of the service and of the agent is a [`Listener`], which refuses from the moment
//! that it is closed. Its [`Acceptor`] asks a [`ConnectionLimit`]; how large that is follows from the
//! file descriptors that the process may have ([`descriptors`]). [`private`] knows the listeners that nothing public may lead to, and
//! [`certificate`] reads what listeners with TLS show.

pub(crate) mod certificate;
mod connection_limit;
pub(crate) mod descriptors;
mod listener;
pub(crate) mod private;

pub use connection_limit::Refusals;
pub(crate) use connection_limit::{ConnectionCaps, ConnectionLimit, Permit, Source};
pub(crate) use listener::{Acceptor, Connection, FIRST_BYTE_TIMEOUT, Listener, first_byte};
