//! Which of several nodes has the endpoint of an agent, and when others may have it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ginnel_agent::Agent;
use ginnel_store::PostgresOptions;

use reqwest::Method;
use serde_json::{Value, json};

use super::breaker::{ARMED, Breaker, CLOSED, OPEN};
use super::cluster::{Nodes, PATIENCE};
use crate::agent::support::mirror;
use crate::engines::{new_database, server};

fn web() -> Value {
    json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"})
}

pub(super) fn name_of(database: &PostgresOptions) -> String {
    let address = database.to_string();
    address.rsplit('/').next().unwrap().to_owned()
}

async fn stop_tunnel(nodes: &Nodes, agent: &Agent) {
    let url = format!("{}/api/tunnels/web", agent.api_url().unwrap());
    assert_eq!(nodes.http.delete(url).send().await.unwrap().status().as_u16(), 204);
}

#[tokio::test]
async fn a_name_is_free_on_all_nodes_as_soon_as_its_tunnel_is_stopped() {
    let nodes = Nodes::start(&["a", "b"]).await;
    let agents = [nodes.agent(0).await, nodes.agent(1).await];

    for round in 0..12 {
        let agent = &agents[round / 2 % 2];
        let (status, text) = nodes.tunnel(agent, web()).await;
        assert_eq!(status, 201, "{round}: {text}");
        stop_tunnel(&nodes, agent).await;
    }
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_that_others_take_for_gone_binds_in_its_next_epoch() {
    let database = new_database();
    let nodes = Nodes::on(&database, &["a", "b"]).await;
    let agent = nodes.agent(1).await;
    let count = "SELECT count(*) FROM ginnel.resources WHERE kind = 'node'";
    assert_eq!(server().psql(&name_of(&database), count), "2");

    // As when another node has fenced it and removed what it left.
    let remove =
        "DELETE FROM ginnel.resources WHERE kind = 'node' AND body LIKE '%\"name\":\"b\"%'";
    server().psql(&name_of(&database), remove);
    let (status, text) = nodes.tunnel(&agent, web()).await;

    assert_eq!(status, 201, "{text}");
    assert_eq!(server().psql(&name_of(&database), count), "2", "whose tunnel it is must be there");
    nodes.stop().await;
}

#[tokio::test]
async fn a_name_whose_bind_failed_is_free_however_its_commit_ended() {
    let (database, breaker) =
        (new_database(), Breaker::start("http web.tunnels.test:80", false).await);
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", breaker.port, name_of(&database));
    let nodes = Nodes::on(&address.parse().unwrap(), &["a"]).await;
    let agent = nodes.agent(0).await;

    breaker.state.store(ARMED, Ordering::SeqCst);
    let (status, text) = nodes.tunnel(&agent, web()).await;
    assert!(status >= 400, "{text}");
    assert_eq!(breaker.state.load(Ordering::SeqCst), CLOSED);
    let count = "SELECT count(*) FROM ginnel.claims WHERE key = 'http web.tunnels.test:80'";
    assert_eq!(server().psql(&name_of(&database), count), "1", "the server has got it");
    // The agent may have stopped waiting a moment before the service.
    tokio::time::sleep(Duration::from_secs(3)).await;
    breaker.state.store(OPEN, Ordering::SeqCst);

    let began = Instant::now();
    loop {
        let (status, text) = nodes.tunnel(&agent, web()).await;
        if status == 201 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status} {text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    nodes.stop().await;
}

/// Removes a node as others do who have taken it for gone a while ago.
fn remove_node(database: &PostgresOptions, name: &str) {
    let remove = format!(
        "WITH gone AS (DELETE FROM ginnel.resources
             WHERE kind = 'node' AND body LIKE '%\"name\":\"{name}\"%' RETURNING id),
         next AS (UPDATE ginnel.cluster SET version = version + 1 RETURNING version)
         INSERT INTO ginnel.changes (version, token, ids)
             SELECT next.version, 'test', json_build_array(gone.id)::text FROM next, gone"
    );
    server().psql(&name_of(database), &remove);
}

#[tokio::test]
async fn a_node_without_the_database_gives_up_a_name_that_is_anothers_now() {
    let (database, breaker) =
        (new_database(), Breaker::start("http web.tunnels.test:80", false).await);
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", breaker.port, name_of(&database));
    let through = address.parse().unwrap();
    let nodes = Nodes::on_each(&[("a", &database), ("b", &through)]).await;
    let (kept, cut_off) = (nodes.agent(0).await, nodes.agent(1).await);
    let mut definition = web();
    definition["addr"] = json!(mirror().await);
    assert_eq!(nodes.tunnel(&cut_off, definition).await.0, 201);
    until(|| async { nodes.visit(0, "web.tunnels.test").await == 200 }).await;

    breaker.state.store(CLOSED, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.visit(1, "web.tunnels.test").await, 200, "nobody else has the name");
    remove_node(&database, "b");
    // Nothing listens where its tunnel leads to.
    until(|| async { nodes.tunnel(&kept, web()).await.0 == 201 }).await;

    until(|| async { nodes.visit(1, "web.tunnels.test").await == 404 }).await;
    assert_eq!(nodes.visit(0, "web.tunnels.test").await, 502);
    breaker.state.store(OPEN, Ordering::SeqCst);
    until(|| async { nodes.visit(1, "web.tunnels.test").await == 502 }).await;
    nodes.stop().await;
}

async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_change_is_answered_when_it_is_live_although_it_could_not_be_read_at_first() {
    let database = new_database();
    let breaker = Breaker::start("teapot", true).await;
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", breaker.port, name_of(&database));
    let nodes = Nodes::on(&address.parse().unwrap(), &["a"]).await;
    let create = async |path: &str, body: Value| {
        let made = nodes.call(0, Method::POST, path, body).await;
        assert_eq!(made.status, 201, "{}", made.json);
        made.text("id")
    };
    let backend = create("/backends/http_response", json!({"body": "a", "status_code": 200})).await;
    let edge = create("/edges/https", json!({"hostports": ["edge.tunnels.test:80"]})).await;
    let route =
        json!({"match": "/", "match_type": "path_prefix", "backend": {"backend_id": backend}});
    create(&format!("/edges/https/{edge}/routes"), route).await;
    assert_eq!(nodes.visit(0, "edge.tunnels.test").await, 200);

    breaker.state.store(ARMED, Ordering::SeqCst);
    let path = format!("/backends/http_response/{backend}");
    let change = json!({"status_code": 418, "metadata": "teapot"});
    let changing = nodes.call(0, Method::PATCH, &path, change);
    let opening = async {
        until(|| async { breaker.state.load(Ordering::SeqCst) == CLOSED }).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        breaker.state.store(OPEN, Ordering::SeqCst);
    };
    let changing = async {
        let changed = changing.await;
        (changed, nodes.visit(0, "edge.tunnels.test").await)
    };
    let ((changed, seen), ()) = tokio::join!(changing, opening);

    assert_eq!(changed.status, 200, "{}", changed.json);
    assert_eq!(seen, 418, "what was answered is live");
    nodes.stop().await;
}

#[tokio::test]
async fn a_node_that_saw_nothing_for_a_lease_reads_again_what_others_have() {
    let (database, breaker) = (new_database(), Breaker::start("", true).await);
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", breaker.port, name_of(&database));
    let through = address.parse().unwrap();
    let nodes = Nodes::on_each(&[("a", &database), ("b", &through)]).await;
    let agent = nodes.agent(0).await;
    let mut definition = web();
    definition["addr"] = json!(mirror().await);
    assert_eq!(nodes.tunnel(&agent, definition).await.0, 201);
    until(|| async { nodes.visit(1, "web.tunnels.test").await == 200 }).await;

    breaker.state.store(CLOSED, Ordering::SeqCst);
    // Without a word: nothing says later that it is gone.
    let remove = "DELETE FROM ginnel.resources WHERE kind = 'tn'";
    server().psql(&name_of(&database), remove);
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert_eq!(nodes.visit(1, "web.tunnels.test").await, 200);
    breaker.state.store(OPEN, Ordering::SeqCst);

    until(|| async { nodes.visit(1, "web.tunnels.test").await == 404 }).await;
    nodes.stop().await;
}
