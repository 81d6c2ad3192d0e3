//! Labeled tunnels whose agents are lost at another node: visitors of this one wait for them.

use std::time::{Duration, Instant};

use ginnel_agent::Agent;

use reqwest::Method;
use serde_json::json;

use super::cluster::{Nodes, PATIENCE, TUNNELS};
use crate::agent::support::{mirror, online, options_of};
use crate::agent::two_nodes::Wire;

/// Two nodes, an edge whose tunnel an agent has at the second, and the wire between the two.
async fn edge_with_tunnel_at_the_other_node(nodes: &Nodes) -> (Agent, Wire) {
    let wire = Wire::to(&[nodes.nodes[1].agent_address().unwrap()]).await;
    let mut options = options_of(&nodes.nodes[0]);
    options.server_addrs = vec![wire.address.into()];
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;
    let labeled = json!({"name": "group", "addr": mirror().await, "labels": ["app=shop"]});
    assert_eq!(nodes.tunnel(&agent, labeled).await.0, 201);
    let group = json!({"labels": {"app": "shop"}});
    let group = nodes.call(0, Method::POST, "/backends/tunnel_group", group).await;
    let edge = json!({"hostports": ["shop.test:80"]});
    let edge = nodes.call(0, Method::POST, "/edges/https", edge).await;
    let route = json!({"match_type": "path_prefix", "match": "/",
        "backend": {"backend_id": group.json["id"]}});
    let path = format!("/edges/https/{}/routes", edge.json["id"].as_str().unwrap());
    assert_eq!(nodes.call(0, Method::POST, &path, route).await.status, 201);
    let began = Instant::now();
    while nodes.visit(0, "shop.test").await != 200 {
        assert!(began.elapsed() < PATIENCE, "the nodes are not connected");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (agent, wire)
}

#[tokio::test]
async fn a_visitor_waits_for_the_tunnel_that_was_lost_at_another_node() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let (agent, wire) = edge_with_tunnel_at_the_other_node(&nodes).await;

    wire.cut();
    nodes.until(0, TUNNELS, &[]).await;
    let mending = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        wire.mend();
    };
    let (status, ()) = tokio::join!(nodes.visit(0, "shop.test"), mending);

    assert_eq!(status, 200);
    agent.stop(Duration::ZERO).await;
    nodes.stop().await;
}

#[tokio::test]
async fn nobody_waits_for_a_tunnel_that_was_stopped_at_another_node() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let (agent, _wire) = edge_with_tunnel_at_the_other_node(&nodes).await;

    assert!(agent.stop_tunnel("group").await);
    nodes.until(0, TUNNELS, &[]).await;
    let began = Instant::now();

    assert_eq!(nodes.visit(0, "shop.test").await, 503);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    agent.stop(Duration::ZERO).await;
    nodes.stop().await;
}
