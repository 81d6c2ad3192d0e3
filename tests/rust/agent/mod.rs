//! The agent, with real sockets.

mod relay;
