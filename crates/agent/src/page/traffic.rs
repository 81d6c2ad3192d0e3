//! What the page of traffic draws: the last hour of each tunnel.

use std::time::Instant;

use serde::Serialize;

use crate::inner::AgentInner;
use crate::traffic::{SLOT_MS, TrafficSlot, class_ends};

/// The last hour of all tunnels.
#[derive(Debug, Serialize)]
pub(super) struct TrafficData {
    /// How long a slot is, in milliseconds.
    pub step: u64,
    /// The ends of the classes of durations, in milliseconds.
    pub ends: Vec<f64>,
    pub tunnels: Vec<TunnelTraffic>,
}

/// The last hour of a tunnel.
#[derive(Debug, Serialize)]
pub(super) struct TunnelTraffic {
    pub name: String,
    /// Those in which requests came, oldest first.
    pub slots: Vec<TrafficSlot>,
}

impl TrafficData {
    /// The slots from one on: its beginning in milliseconds since 1970.
    pub fn from_agent(shared: &AgentInner, from: u64) -> Self {
        let now = Instant::now();
        let tunnels = shared.tunnels.all();
        let of = |tunnel: &std::sync::Arc<crate::RunningTunnel>| TunnelTraffic {
            name: tunnel.name.clone(),
            slots: tunnel.metrics.traffic_since(from, now),
        };
        Self {
            step: SLOT_MS,
            ends: class_ends().collect(),
            tunnels: tunnels.iter().map(of).collect(),
        }
    }
}
