//! What lists of agents show and the API does not have: how far away each is, and how many tunnels it has.

use std::collections::HashMap;

use serde::Serialize;

use crate::context::ServiceState;

/// The agents of all nodes that have something to say of.
#[derive(Debug, Serialize)]
pub(super) struct AgentRows {
    agents: HashMap<String, AgentFigure>,
}

#[derive(Debug, Default, Serialize)]
struct AgentFigure {
    tunnels: usize,
    /// How long the last heartbeat took, in milliseconds; none before the first, or at another node.
    latency_ms: Option<f64>,
}

impl AgentRows {
    pub fn from_state(state: &ServiceState) -> Self {
        let mut agents = HashMap::<String, AgentFigure>::new();
        for session in state.registry.sessions() {
            let latency = session.latency.get().and_then(|latency| *latency.borrow());
            let latency_ms = latency.map(|latency| latency.as_secs_f64() * 1000.0);
            agents.insert(session.id.clone(), AgentFigure { tunnels: 0, latency_ms });
        }
        for tunnel in state.registry.tunnels() {
            agents.entry(tunnel.session.id.clone()).or_default().tunnels += 1;
        }
        let directory = state.cluster.as_ref().map(|cluster| &cluster.directory);
        for id in directory.into_iter().flat_map(|directory| directory.sessions_of_tunnels()) {
            agents.entry(id).or_default().tunnels += 1;
        }
        Self { agents }
    }
}
