//! Listeners and the dialler. The dialler opens all outgoing connections by the rules of their [`DialRole`];
//! [`OutboundClient`] sends HTTP by the same rules.
//!
//! Every listener of the service and of the agent is a [`Listener`]. It asks a [`ConnectionLimit`], whose size follows
//! from the file descriptors that the process may have ([`descriptors`]), and serves until a [`Shutdown`];
//! [`serve_api`] serves an API on it. `timeouts` has the time limits of clients. [`private`] and [`PrivateSocket`]
//! know the listeners and sockets that no public traffic may reach, [`Reach`] knows which addresses are public,
//! `resets` copies bytes in both directions, [`tls`] has the settings of TLS, and [`secret_file`] reads files with secrets.

#[cfg(feature = "service")]
mod api_server;
#[cfg(feature = "service")]
mod connection_limit;
#[cfg(feature = "service")]
pub(crate) mod descriptors;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
mod dial;
#[cfg(feature = "service")]
mod jitter;
#[cfg(feature = "service")]
mod listener;
#[cfg(feature = "service")]
mod outbound_client;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
pub(crate) mod private;
#[cfg(feature = "service")]
mod private_sockets;
#[cfg(feature = "service")]
mod proxy_header;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
mod reach;
#[cfg(feature = "service")]
mod resets;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
mod resolve;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
pub(crate) mod secret_file;
#[cfg(feature = "service")]
mod shutdown;
#[cfg(feature = "service")]
mod timeouts;
#[cfg(feature = "service")]
pub(crate) mod tls;

#[cfg(feature = "service")]
pub(crate) use self::{
    api_server::{ApiService, ApiTimeouts, PeerAddress, routed, serve_api},
    connection_limit::{ConnectionCaps, ConnectionCounts, ConnectionLimit, Permit, SourceAddress},
    dial::{DialRefusal, dial, dial_address, dial_any, is_reset_at_once, permit_host},
    jitter::random_fraction,
    listener::{AcceptedConnection, ConnectionTask, Listener},
    outbound_client::{OutboundClient, OutboundError, OutboundOptions, refusal_of},
    private_sockets::{PrivateSocket, check_socket},
    proxy_header::ProxyProtocol,
    reach::OutOfReach,
    resets::{carry_both_until, copy_both, copy_both_until, is_reset, reset_socket_on_close},
    resolve::{listen_at, listen_on, listen_on_now, resolve},
    shutdown::{Shutdown, ShutdownPhase, ShutdownSignal},
    timeouts::{FIRST_BYTE_TIMEOUT, HANDSHAKE_TIMEOUT, HEAD_TIMEOUT, first_byte},
};
#[cfg(feature = "service")]
pub use connection_limit::{AcceptFailures, Refusals};
pub use dial::loopback_only;
pub(crate) use dial::{DialRole, is_loopback_only, permit};
#[cfg(all(test, feature = "service"))]
pub(crate) use private_sockets::HeldSockets;
pub(crate) use reach::Reach;
#[cfg(feature = "service")]
pub use resets::ResetOnClose;
pub(crate) use resolve::resolve_now;
