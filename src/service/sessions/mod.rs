//! What faces agents: their listener, their sessions, and the tunnels that they offer.
//!
//! `listener` takes connections, `conversation` talks to one agent, `wanted` turns what it asks for
//! into an endpoint, and the [`Registry`] knows who is online with what. A [`Tunnel`] is how the
//! edges reach a local service through its agent.

mod access;
mod conversation;
mod listener;
mod proxy_protocol;
mod registry;
mod reservation;
mod socket;
mod tunnel;
mod wanted;

use std::time::Duration;

pub(super) use conversation::House;
pub(super) use listener::Listener;
pub(super) use registry::{Online, Registry};
pub(super) use tunnel::{Kind, Tunnel};

/// How agents are served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name or address to listen on.
    pub host: String,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Time between two heartbeats.
    pub heartbeat_interval: Duration,
    /// How late a heartbeat may come back.
    pub heartbeat_tolerance: Duration,
    /// How long the addresses of an agent that is gone are kept for it.
    pub reserve: Duration,
    /// What stands before the number of an error code.
    pub code_prefix: String,
}
