//! The agent, with real sockets.

mod relay;
mod whole;
