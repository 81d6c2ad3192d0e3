//! Nodes that cannot reach the database: visitors find what is left, and agents wait for it.

use std::time::{Duration, Instant};

use ginnel_agent::Agent;
use ginnel_store::PostgresOptions;

use serde_json::json;
use tokio::task::block_in_place;

use super::cluster::{Nodes, PATIENCE};
use crate::agent::support::{mirror, online, options_of};
use crate::agent::two_nodes::Wire;
use crate::engines::PostgresServer;

const SETTINGS: [&str; 2] = ["-c", "fsync=off"];
/// Longer than the database may be away without anybody seeing it.
const OUTAGE: Duration = Duration::from_millis(1500);

/// Nodes, and the server of their database.
async fn nodes_of(names: &[&str]) -> (PostgresServer, Nodes) {
    let server = PostgresServer::start(&SETTINGS);
    let database: PostgresOptions = server.address(&server.new_database()).parse().unwrap();
    let nodes = Nodes::on(&database, names).await;
    (server, nodes)
}

/// Starts the server again after a while.
async fn comes_back(server: &PostgresServer) {
    tokio::time::sleep(OUTAGE).await;
    block_in_place(|| server.run(&SETTINGS));
}

async fn agent_at(nodes: &Nodes, wires: &[&Wire], host: &str) -> Agent {
    let mut options = options_of(&nodes.nodes[0]);
    options.server_addrs = wires.iter().map(|wire| wire.address.into()).collect();
    let agent = Agent::start(options).await.unwrap();
    let mut state = agent.watch_state();
    let all = state.wait_for(|state| state.sessions().count() == wires.len());
    drop(tokio::time::timeout(PATIENCE, all).await.unwrap().unwrap());
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["http"], "hostname": host});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_one_of_two_nodes_has_lost_is_found_at_the_other() {
    let (server, nodes) = nodes_of(&["a", "b", "c"]).await;
    let mut wires = Vec::new();
    for node in [1, 2, 1, 2] {
        wires.push(Wire::to(&[nodes.nodes[node].agent_address().unwrap()]).await);
    }
    let hosts = ["one.tunnels.test", "two.tunnels.test"];
    let one = agent_at(&nodes, &[&wires[0], &wires[1]], hosts[0]).await;
    let two = agent_at(&nodes, &[&wires[2], &wires[3]], hosts[1]).await;
    let began = Instant::now();
    while nodes.list(0, "/tunnels", "tunnels", "id").await.len() != 4 {
        assert!(began.elapsed() < PATIENCE, "each tunnel at each node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for host in hosts {
        assert_eq!(nodes.visit(0, host).await, 200);
    }

    server.kill();
    // Of one agent the first session, of the other the second: node a prefers the newer one.
    wires[0].cut();
    wires[3].cut();
    for agent in [&one, &two] {
        let mut state = agent.watch_state();
        let left = state.wait_for(|state| state.sessions().count() == 1);
        drop(tokio::time::timeout(PATIENCE, left).await.unwrap().unwrap());
    }

    let began = Instant::now();
    for host in hosts {
        while nodes.visit(0, host).await != 200 {
            assert!(began.elapsed() < PATIENCE, "{host} is not found");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for host in hosts.repeat(10) {
        assert_eq!(nodes.visit(0, host).await, 200, "{host}");
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_logs_in_or_binds_while_the_database_is_away_is_not_refused() {
    let (server, nodes) = nodes_of(&["a"]).await;

    server.kill();
    let agent = Agent::start(options_of(&nodes.nodes[0])).await.unwrap();
    tokio::join!(comes_back(&server), online(&agent));
    assert_eq!(agent.last_error(), None);

    server.kill();
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["http"], "hostname": "web.tunnels.test"});
    let labeled = json!({"name": "group", "addr": 9, "labels": ["app=shop"]});
    let (bound, group, ()) = tokio::join!(
        nodes.tunnel(&agent, definition),
        nodes.tunnel(&agent, labeled),
        comes_back(&server)
    );

    assert_eq!((bound.0, group.0), (201, 201), "{} {}", bound.1, group.1);
    assert_eq!(nodes.visit(0, "web.tunnels.test").await, 200);
    assert_eq!(agent.last_error(), None);
    agent.stop(Duration::ZERO).await;
    nodes.stop().await;
}
