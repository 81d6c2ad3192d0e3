//! What the first view of the console shows: how the node is, and what is wrong.

use std::collections::BTreeSet;

use serde::Serialize;

use ginnel_net::admin::{MonitorTarget, ReadyFor};

use super::history::{TrafficHistory, TrafficSample};
use crate::context::ServiceState;
use crate::monitoring::ServiceMonitor;

/// How a node is.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    version: &'static str,
    /// The name of the node, where there are several.
    node: Option<String>,
    /// How many agents are connected to this node.
    agents: usize,
    /// How many tunnels they have.
    tunnels: usize,
    /// How many tunnels other nodes have.
    remote_tunnels: usize,
    /// Whether all traffic is counted, and not only while somebody is logged in.
    counts_always: bool,
    /// The interval of a sample, in seconds.
    interval: u64,
    samples: Vec<TrafficSample>,
    /// What is wrong, the most severe first.
    problems: Vec<NodeProblem>,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
struct NodeProblem {
    /// Whether the node is not ready for it.
    is_severe: bool,
    text: String,
    /// The edge that it concerns.
    edge_id: Option<String>,
}

impl Overview {
    pub fn from_state(
        state: &ServiceState,
        monitor: &ServiceMonitor,
        history: &TrafficHistory,
    ) -> Self {
        let cluster = state.cluster.as_ref();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            node: cluster.map(|cluster| cluster.own_node().record.name),
            agents: state.registry.sessions().len(),
            tunnels: state.registry.tunnels().len(),
            remote_tunnels: cluster.map_or(0, |cluster| cluster.directory.tunnel_count()),
            counts_always: history.is_whole(),
            interval: super::history::SAMPLE_INTERVAL.as_secs(),
            samples: history.samples(),
            problems: collect_problems(state, monitor),
        }
    }
}

fn collect_problems(state: &ServiceState, monitor: &ServiceMonitor) -> Vec<NodeProblem> {
    let problem = |is_severe| move |text| NodeProblem { is_severe, text, edge_id: None };
    let obstacles: BTreeSet<_> = [ReadyFor::Writes, ReadyFor::Backups]
        .into_iter()
        .flat_map(|purpose| monitor.unready_reasons(purpose))
        .collect();
    let warnings = monitor.warnings().into_iter().filter(|text| !obstacles.contains(text));
    let warnings: Vec<_> = warnings.map(problem(false)).collect();
    let ports = state.publisher.missing_ports().into_iter().map(|(edge_id, port)| NodeProblem {
        is_severe: true,
        text: format!("port {port} is used by another program, so its TCP edge gets no traffic"),
        edge_id: Some(edge_id),
    });
    obstacles.into_iter().map(problem(true)).chain(ports).chain(warnings).collect()
}
