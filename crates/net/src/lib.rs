//! Listeners, and the dialler that opens all outgoing connections.
//!
//! # One connection
//!
//! Every listener of the service and of the agent is a [`Listener`]. It asks a [`ConnectionLimit`], whose size follows
//! from the file descriptors of the process ([`descriptors`]), and accepts until a [`Shutdown`]. [`serve_api`] serves an
//! API on it, and [`admin`] serves health, readiness and metrics. The dialler opens an outgoing connection by the rules
//! of its [`DialRole`]; [`OutboundClient`] sends HTTP by the same rules. [`private`] and [`PrivateSocket`] know the
//! listeners and sockets that public traffic must not reach, [`Reach`] knows which addresses are public, `resets` copies
//! bytes in both directions, [`tls`] has the TLS settings, and [`secret_file`] reads files with secrets.
//!
//! [`proxy`] knows the proxy of a connection, and opens tunnels through it.
//!
//! Without the feature `server` there are only the dialler, `proxy` and `resets`.
//!
//! # Invariants
//!
//! - Every outgoing connection passes the dialler, also those of clients, agents, logins and ACME.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
mod api_server;
#[cfg(feature = "server")]
mod channel_body;
#[cfg(feature = "server")]
mod connection_limit;
#[cfg(feature = "server")]
pub mod descriptors;
mod dial;
#[cfg(feature = "server")]
mod listener;
#[cfg(feature = "server")]
mod outbound_client;
#[cfg(feature = "server")]
mod pending_sockets;
pub mod private;
#[cfg(feature = "server")]
mod private_sockets;
pub mod proxy;
#[cfg(feature = "server")]
mod proxy_header;
mod reach;
mod resets;
mod resolve;
pub mod secret_file;
#[cfg(feature = "server")]
mod shutdown;
#[cfg(feature = "server")]
mod timeouts;
#[cfg(feature = "server")]
pub mod tls;

#[cfg(feature = "server")]
pub use self::{
    api_server::{ApiService, ApiTimeouts, PeerAddress, serve_api, service_from_router},
    channel_body::ChannelBody,
    connection_limit::{ConnectionCaps, ConnectionCounts, ConnectionLimit, Permit, SourceAddress},
    listener::{AcceptedConnection, ConnectionTask, Listener},
    outbound_client::{OutboundClient, OutboundError, OutboundOptions, find_refusal},
    private_sockets::{PrivateSocket, check_socket},
    proxy_header::ProxyProtocol,
    shutdown::{Shutdown, ShutdownPhase, ShutdownSignal},
    timeouts::{FIRST_BYTE_TIMEOUT, HANDSHAKE_TIMEOUT, HEAD_TIMEOUT, first_byte},
};
#[cfg(feature = "server")]
pub use connection_limit::{AcceptFailures, Refusals};
pub use dial::{
    DialRefusal, DialRole, dial_address, dial_any, dial_host, is_loopback_only, is_reset_at_once,
    loopback_only, permit_address, permit_host,
};
#[cfg(all(feature = "server", any(test, feature = "test-support")))]
pub use private_sockets::HeldSockets;
pub use reach::{OutOfReach, Reach};
pub use resets::{
    ResetOnClose, carry_both_until, copy_both, copy_both_until, is_reset, reset_socket_on_close,
};
pub use resolve::{listen_at, listen_on, listen_on_now, resolve_host, resolve_now};
