//! What faces agents: their listener, their sessions, and the tunnels that they offer.
//!
//! `listener` takes connections, `login` finds out whose agent it is, `session` talks to one that
//! is known, `bind_request` turns what it asks for into an endpoint, and the [`Registry`] knows who is online
//! with what. `takeover` gives the address of an agent that is gone to another session of its account. `limits` has the
//! limits of messages from agents, and `revocation` ends sessions and tunnels that a credential no longer allows. Edges
//! reach a local service by the [`OnlineTunnel`] of its agent.

mod access;
mod bind_check;
mod bind_request;
mod command;
mod limits;
mod listener;
mod login;
mod lost_labels;
mod online_agent;
mod proxy_protocol;
mod registry;
mod registry_state;
mod reservation;
mod revocation;
mod rows;
mod session;
mod session_counts;
mod settings;
mod socket;
mod state;
mod stream_shares;
mod takeover;
#[cfg(test)]
mod tests;
mod tunnel;
mod tunnel_table;

pub use bind_check::{check_bind, check_labeled_bind, requested_address};
pub use command::AgentCommand;
pub use listener::{AgentListener, BoundAgentListener};
pub use lost_labels::LostLabels;
pub use registry::Registry;
pub use reservation::Reservation;
pub use rows::{session_row, tunnel_row};
pub use settings::AgentSettings;
pub use state::AgentsState;
pub use tunnel::OnlineTunnel;
pub use tunnel_table::{Labeled, TunnelTable, own_port, public_host};
