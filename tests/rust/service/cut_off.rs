//! A node that is cut off from the database, and from nothing else.

use std::time::{Duration, Instant};

use ginnel_store::PostgresOptions;

use serde_json::json;

use super::cluster::{Nodes, PATIENCE};
use super::nodes::Gate;
use crate::agent::support::mirror;
use crate::engines::{new_database, server};

/// Longer than a lease, and than names wait for the agents of a node that is gone.
const TAKEOVER: Duration = Duration::from_secs(80);
const HOST: &str = "web.tunnels.test";

/// Nodes `a` and `b`, and what is between `b` and the database.
async fn nodes_and_gate() -> (Nodes, Gate) {
    let database = new_database();
    let gate = Gate::start(server().port()).await;
    let text = database.to_string();
    let name = text.rsplit('/').next().unwrap();
    let through_gate = format!("postgres://ginnel@127.0.0.1:{}/{name}", gate.port);
    let through_gate: PostgresOptions = through_gate.parse().unwrap();
    let nodes = Nodes::on_each(&[("a", &database), ("b", &through_gate)]).await;
    (nodes, gate)
}

async fn until_status(nodes: &Nodes, node: usize, status: u16) {
    let began = Instant::now();
    while nodes.visit(node, HOST).await != status {
        assert!(began.elapsed() < PATIENCE, "node {node} does not answer {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn visitors_reach_a_node_without_database_until_another_has_the_name_and_again_after_that() {
    let (nodes, gate) = nodes_and_gate().await;
    let (first, rival) = (nodes.agent(1).await, nodes.agent(0).await);
    let tunnel = |addr: u16| json!({"name": "web", "addr": addr, "proto": "http", "schemes": ["http"], "hostname": HOST});
    assert_eq!(nodes.tunnel(&first, tunnel(mirror().await)).await.0, 201);
    until_status(&nodes, 0, 200).await;

    gate.close(true);
    let (mut began, cut) = (Instant::now(), Instant::now());
    // Nobody is where the rival leads to.
    while nodes.tunnel(&rival, tunnel(9)).await.0 != 201 {
        while began.elapsed() < Duration::from_secs(1) {
            for node in [0, 1] {
                let status = nodes.visit(node, HOST).await;
                assert_eq!(status, 200, "of node {node} after {:?}", cut.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        began = Instant::now();
        assert!(cut.elapsed() < TAKEOVER, "the name is never free");
    }
    until_status(&nodes, 0, 502).await;
    // The other node tells it that the name is lost, and nobody where to.
    until_status(&nodes, 1, 404).await;
    let status = || first.list_tunnels()[0].status.clone().unwrap_or_default();
    assert!(status().starts_with("reconnecting: "), "{}", status());

    gate.close(false);
    rival.stop(Duration::ZERO).await;
    for node in [0, 1] {
        until_status(&nodes, node, 200).await;
    }
    let back = Instant::now();
    while status() != "online" {
        assert!(back.elapsed() < PATIENCE, "{}", status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    nodes.stop().await;
}
