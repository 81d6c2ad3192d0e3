//! The agent, with real sockets.

mod alone;
mod black_hole;
mod crowded;
mod holds;
mod http2;
mod idle;
mod kept;
mod killed;
mod labeled;
mod leaks;
mod local_faults;
mod memory;
mod mocks;
mod page;
mod refused;
pub mod relay;
mod returning;
mod sent;
mod silent;
mod streams;
pub mod support;
mod swapped;
pub mod tls;
pub mod two_nodes;
mod whole;
