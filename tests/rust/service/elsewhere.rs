//! Tunnels whose agent has left a node, or is about to: they are reached where it is now.

use std::time::{Duration, Instant};

use ginnel_agent::Agent;

use rcgen::ExtendedKeyUsagePurpose;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::cluster::{Nodes, PATIENCE, TUNNELS, options};
use super::support::Folder;
use crate::agent::support::{mirror, online, options_of};
use crate::agent::tls::{Identity, visit};
use crate::agent::two_nodes::Wire;
use crate::engines::new_database;

/// Shorter than the address of an agent that is gone is kept for it.
const RESERVE: Duration = Duration::from_secs(20);

/// Nodes `a` and `b`, which take visitors at addresses of their own.
async fn two_nodes() -> Nodes {
    let database = new_database();
    let named = [("a", "127.0.0.1"), ("b", "127.0.0.2")];
    let all = named.map(|(name, host)| {
        let mut options = options(&database, name);
        options.gateway.host = host.to_owned();
        options
    });
    Nodes::with(all).await
}

impl Nodes {
    /// What a visitor gets at a port of a node; 0 where nobody answers.
    async fn visit_port(&self, node: usize, port: u16) -> u16 {
        let host = ["127.0.0.1", "127.0.0.2"][node];
        let request = self.http.get(format!("http://{host}:{port}/")).header("connection", "close");
        request.send().await.map_or(0, |response| response.status().as_u16())
    }

    async fn until_port(&self, node: usize, port: u16, limit: Duration) {
        let began = Instant::now();
        while self.visit_port(node, port).await != 200 {
            assert!(began.elapsed() < limit, "nobody answers at {port} of node {node}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn port_of(agent: &Agent) -> u16 {
    agent.list_tunnels()[0].public_url.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_leads_to_the_other_node_while_its_agent_is_gone_here() {
    let nodes = two_nodes().await;
    let mut wires = Vec::new();
    for node in &nodes.nodes {
        wires.push(Wire::to(&[node.agent_address().unwrap()]).await);
    }
    let mut options = options_of(&nodes.nodes[0]);
    options.server_addrs = wires.iter().map(|wire| wire.address.into()).collect();
    let agent = Agent::start(options).await.unwrap();
    online(&agent).await;
    let definition = json!({"name": "db", "addr": mirror().await, "proto": "tcp"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let port = port_of(&agent);
    let url = format!("tcp://127.0.0.{{}}:{port}");
    let at = |node: u8| url.replace("{}", &node.to_string());
    nodes.until(0, TUNNELS, &[&at(1), &at(2)]).await;
    for node in [0, 1] {
        nodes.until_port(node, port, PATIENCE).await;
    }

    for (lost, stays) in [(0, 1), (1, 0)] {
        wires[lost].cut();
        let left = at(u8::try_from(stays).unwrap() + 1);
        nodes.until(stays, TUNNELS, &[&left]).await;
        nodes.until_port(lost, port, RESERVE).await;
        assert_eq!(nodes.visit_port(stays, port).await, 200);
        wires[lost].mend();
        nodes.until(0, TUNNELS, &[&at(1), &at(2)]).await;
    }
    nodes.stop().await;
}

#[tokio::test]
async fn an_agent_that_asks_for_the_port_of_another_does_not_cut_it_off() {
    let nodes = two_nodes().await;
    let (owner, other) = (nodes.agent(0).await, nodes.agent(1).await);
    let definition = json!({"name": "db", "addr": mirror().await, "proto": "tcp"});
    assert_eq!(nodes.tunnel(&owner, definition).await.0, 201);
    let port = port_of(&owner);
    nodes.until_port(1, port, PATIENCE).await;

    let taking = json!({"name": "db", "addr": 9, "proto": "tcp",
        "remote_addr": format!("127.0.0.2:{port}")});
    let (status, text) = nodes.tunnel(&other, taking).await;

    assert!(status >= 400 && text.to_string().contains("already online"), "{text}");
    assert_eq!(nodes.visit_port(1, port).await, 200);
    nodes.stop().await;
}

#[tokio::test]
async fn a_certificate_that_a_tunnel_asks_visitors_for_is_asked_for_at_another_node() {
    let (nodes, folder) = (two_nodes().await, Folder::new());
    let known = Identity::new(&folder, "visitor.test", ExtendedKeyUsagePurpose::ClientAuth);
    let stranger = Identity::new(&folder, "stranger.test", ExtendedKeyUsagePurpose::ClientAuth);
    let agent = nodes.agent(1).await;
    let definition = json!({"name": "shop", "addr": mirror().await, "proto": "http",
        "schemes": ["https"], "hostname": "shop.test", "mutual_tls_cas": known.files[0]});
    let (status, text) = nodes.tunnel(&agent, definition).await;
    assert_eq!(status, 201, "{text}");
    let authority = nodes.nodes[0].gateway().authority().pem();
    let ask = async |node: usize, shown: Option<&Identity>| {
        let at = nodes.nodes[node].gateway().https_address().unwrap().to_string();
        visit(&at, authority, shown, true).await
    };
    let began = Instant::now();
    while !ask(0, Some(&known)).await.is_ok_and(|it| it.starts_with("HTTP/1.1 200")) {
        assert!(began.elapsed() < PATIENCE, "the nodes are not connected");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    for node in [0, 1] {
        for shown in [None, Some(&stranger)] {
            let said = ask(node, shown).await;
            assert!(said.is_err(), "node {node}: {said:?}");
        }
        let response = ask(node, Some(&known)).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(response.contains("Host: shop.test") || response.contains("host: shop.test"));
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_in_order_serves_what_nobody_else_can() {
    let mut nodes = two_nodes().await;
    let local = mirror().await;
    let mut agents = Vec::new();
    for host in ["busy.tunnels.test", "idle.tunnels.test"] {
        let agent = nodes.agent(1).await;
        let definition = json!({"name": "web", "addr": local, "proto": "http",
            "schemes": ["http"], "hostname": host});
        assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
        let began = Instant::now();
        while nodes.visit(0, host).await != 200 {
            assert!(began.elapsed() < PATIENCE, "the nodes are not connected");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        agents.push(agent);
    }
    let leaving = nodes.nodes.pop().unwrap();
    let at = leaving.gateway().http_address().unwrap();
    let mut visitor = TcpStream::connect(at).await.unwrap();
    let head = "POST / HTTP/1.1\r\nhost: busy.tunnels.test\r\ncontent-length: 2\r\n\
        connection: close\r\n\r\n1";
    visitor.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;

    let stopping = tokio::spawn(leaving.stop(Duration::from_secs(300)));

    // The agent that carries nothing is let go at once: it has nowhere to go here, but may look.
    let began = Instant::now();
    while nodes.visit(0, "idle.tunnels.test").await != 404 {
        assert!(began.elapsed() < PATIENCE, "an agent that carries nothing stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for visit in 0..20 {
        assert_eq!(nodes.visit(0, "busy.tunnels.test").await, 200, "{visit}");
    }
    visitor.write_all(b"2").await.unwrap();
    let mut response = String::new();
    visitor.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // The grace is longer than anybody waits.
    tokio::time::timeout(PATIENCE, stopping).await.expect("nothing is left to do").unwrap();
    drop(agents);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wildcard_does_not_serve_a_name_whose_node_cannot_be_reached() {
    let database = new_database();
    // No way leads from one to the other.
    let nowhere = |name| {
        let mut options = options(&database, name);
        options.cluster.peer_addr = "127.0.0.1:1".parse().ok();
        options.cluster.peer_listen_addr =
            ginnel_base::address::HostPort::parse_to_listen("127.0.0.1:0").ok();
        options
    };
    let nodes = Nodes::with([nowhere("a"), nowhere("b")]).await;
    let (here, there) = (nodes.agent(0).await, nodes.agent(1).await);
    let tunnel = |host: &str| {
        json!({"name": host, "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": host})
    };
    let upstream = mirror().await;
    let wildcard = json!({"name": "all", "addr": upstream, "proto": "http", "schemes": ["http"],
        "hostname": "*.tunnels.test"});
    assert_eq!(nodes.tunnel(&here, wildcard).await.0, 201);
    assert_eq!(nodes.tunnel(&there, tunnel("one.tunnels.test")).await.0, 201);
    let began = Instant::now();
    while nodes.list(0, "/tunnels", "tunnels", "id").await.len() != 2 {
        assert!(began.elapsed() < PATIENCE, "each tunnel is known at each node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // The database knows of a name a moment before the other node does.
    while nodes.visit(0, "one.tunnels.test").await != 503 {
        assert!(began.elapsed() < PATIENCE, "the wildcard serves a name of another node");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for visit in 0..10 {
        assert_eq!(nodes.visit(0, "one.tunnels.test").await, 503, "{visit}");
    }
    assert_eq!(nodes.visit(0, "two.tunnels.test").await, 200);
    nodes.stop().await;
}

#[tokio::test]
async fn a_tls_edge_leads_to_an_agent_of_another_node() {
    let nodes = two_nodes().await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "it", "addr": mirror().await, "labels": ["app=it"]});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let group = json!({"labels": {"app": "it"}});
    let group = nodes.call(1, Method::POST, "/backends/tunnel_group", group).await;
    let edge = json!({
        "hostports": ["shop.test:443"],
        "backend": {"backend_id": group.json["id"]},
        "tls_termination": {"terminate_at": "edge"},
    });
    let edge = nodes.call(0, Method::POST, "/edges/tls", edge).await;
    assert_eq!(edge.status, 201, "{}", edge.json);

    for node in [1, 0] {
        let gateway = nodes.nodes[node].gateway();
        let place = gateway.https_address().unwrap().to_string();
        let began = Instant::now();
        loop {
            let answer = visit(&place, gateway.authority().pem(), None, true).await;
            match answer {
                Ok(answer) if answer.contains("GET /secret HTTP/1.1\r\n") => break,
                other => assert!(began.elapsed() < PATIENCE, "node {node}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wildcard_tls_edge_leaves_names_to_the_node_that_has_them() {
    let nodes = two_nodes().await;
    let agent = nodes.agent(0).await;
    let definition = json!({"name": "web", "addr": mirror().await, "proto": "http",
        "schemes": ["https"], "hostname": "shop.tunnels.test"});
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    let nobody = nodes.call(1, Method::POST, "/backends/static", json!({"address": "127.0.0.1:9"}));
    let edge = json!({
        "hostports": ["*.tunnels.test:443"],
        "backend": {"backend_id": nobody.await.json["id"]},
        "tls_termination": {"terminate_at": "edge"},
    });
    let edge = nodes.call(1, Method::POST, "/edges/tls", edge).await;
    assert_eq!(edge.status, 201, "{}", edge.json);

    for node in [1, 0] {
        let gateway = nodes.nodes[node].gateway();
        let at = gateway.https_address().unwrap();
        let began = Instant::now();
        let visit = async || {
            let pem = reqwest::Certificate::from_pem(gateway.authority().pem().as_bytes()).unwrap();
            let client = reqwest::Client::builder().resolve("shop.tunnels.test", at);
            let client = client.tls_certs_only([pem]).build().unwrap();
            let url = format!("https://shop.tunnels.test:{}/", at.port());
            let response = client.get(url).header("host", "shop.tunnels.test").send().await;
            response.map_or(0, |response| response.status().as_u16())
        };
        while visit().await != 200 {
            assert!(began.elapsed() < PATIENCE, "node {node}: {}", visit().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    nodes.stop().await;
}
