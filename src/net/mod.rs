//! Listeners: how many connections are taken, how long one may be silent, who may not be reached.
//!
//! Every listener of the service and of the agent is a [`Listener`]: it asks a [`ConnectionLimit`],
//! whose size follows from the file descriptors that the process may have ([`descriptors`]), and serves
//! until a [`Shutdown`]; [`serve_api`] serves an API on it. `timeouts` says how long clients may take, [`private`] knows the listeners that
//! nothing public may lead to, [`Reach`] which addresses are public, and [`tls`] is all that
//! is said about TLS.

mod api_server;
mod connection_limit;
pub(crate) mod descriptors;
mod jitter;
mod listener;
pub(crate) mod private;
mod proxy_header;
mod reach;
mod resolve;
mod shutdown;
mod timeouts;
pub(crate) mod tls;

pub(crate) use api_server::{ApiService, ApiTimeouts, PeerAddress, routed, serve_api};
pub use connection_limit::{AcceptFailures, Refusals};
pub(crate) use connection_limit::{
    ConnectionCaps, ConnectionCounts, ConnectionLimit, Permit, SourceAddress,
};
pub(crate) use jitter::random_fraction;
pub(crate) use listener::{AcceptedConnection, ConnectionTask, Listener};
pub(crate) use proxy_header::ProxyProtocol;
pub(crate) use reach::{OutOfReach, Reach};
pub(crate) use resolve::{listen_at, listen_on, listen_on_now, resolve, resolve_now};
pub(crate) use shutdown::{Shutdown, ShutdownPhase, ShutdownSignal};
pub(crate) use timeouts::{FIRST_BYTE_TIMEOUT, HANDSHAKE_TIMEOUT, HEAD_TIMEOUT, first_byte};
