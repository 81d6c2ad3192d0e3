//! The agent, with real sockets.

mod page;
mod relay;
mod whole;
