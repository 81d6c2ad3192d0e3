//! Nodes: what this one knows of itself and of the others.

use std::time::Instant;

use ginnel_api::Operation;
use ginnel_api::remote::nodes::{List, Node};

use crate::cluster::{Cluster, KnownNode};
use crate::context::check_before;
use crate::handlers::prelude::*;

pub(super) fn handlers() -> Vec<Handler> {
    vec![on(list)]
}

async fn list(service: Context, params: List) -> OperationResult<List> {
    check_before(params.before_id.as_deref(), prefix::NODE)?;
    let cluster = service.shared.cluster.as_ref();
    let mut nodes = cluster.map(|cluster| list_nodes(cluster)).unwrap_or_default();
    let peers = service.shared.peers.as_ref();
    let unreachable = peers.map(|peers| peers.unreachable_nodes()).unwrap_or_default();
    let sessions = peers.map(|peers| peers.session_status()).unwrap_or_default();
    for node in &mut nodes {
        let session = sessions.iter().find(|session| *session.node_id == *node.id);
        let is_unreachable = unreachable.iter().any(|it| *it.id == *node.id);
        if is_unreachable && node.state.as_deref() == Some("alive") {
            node.state = Some("unreachable".to_owned());
        }
        let latency = session.and_then(|session| session.latency);
        node.latency_us = latency.and_then(|latency| i64::try_from(latency.as_micros()).ok());
    }
    Ok(service.page_of_online(&List::INFO, &params.before_id, params.limit, nodes, |it| &it.id))
}

/// The nodes that have not stopped, oldest first.
fn list_nodes(cluster: &Cluster) -> Vec<Node> {
    let (now, own_id) = (Instant::now(), cluster.owner().node_id);
    let nodes = cluster.directory.nodes().into_iter().filter(|node| !node.state.stopped);
    nodes.map(|node| show_node(&node, *node.id == *own_id, now)).collect()
}

fn show_node(node: &KnownNode, own: bool, now: Instant) -> Node {
    let number = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
    let record = &node.record;
    Node {
        id: node.id.to_string(),
        name: Some(record.name.clone()),
        state: Some(node.phase(now).to_owned()),
        own: Some(own),
        epoch: number(record.epoch),
        peer_address: Some(record.peer_address.clone()),
        version: Some(record.version.clone()),
        protocol_version: Some(i64::from(record.protocol_version)),
        started_at: Some(record.started_at.clone()),
        seen_ms: i64::try_from(now.duration_since(node.seen).as_millis()).ok(),
        version_lag: Some(node.version_lag),
        sessions: number(node.state.sessions),
        tunnels: number(node.state.tunnels),
        latency_us: None,
    }
}
