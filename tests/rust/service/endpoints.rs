//! Which of several nodes has the endpoint of an agent, and when others may have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use ginnel::agent::Agent;
use ginnel::service::store::PostgresOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use super::cluster::{Nodes, PATIENCE};
use crate::engines::{new_database, server};

fn web() -> Value {
    json!({"name": "web", "addr": 9, "proto": "http", "schemes": ["http"],
        "hostname": "web.tunnels.test"})
}

fn name_of(database: &PostgresOptions) -> String {
    let address = database.to_string();
    address.rsplit('/').next().unwrap().to_owned()
}

async fn stop_tunnel(nodes: &Nodes, agent: &Agent) {
    let url = format!("{}/api/tunnels/web", agent.url().unwrap());
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

const OPEN: u8 = 0;
/// Until the name of the tunnel is committed.
const ARMED: u8 = 1;
const CLOSED: u8 = 2;

/// A way to the server that closes when the server has got a certain commit, before its response.
struct Breaker {
    port: u16,
    state: Arc<AtomicU8>,
}

impl Breaker {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(OPEN)));
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.load(Ordering::SeqCst) != CLOSED {
                    tokio::spawn(carry(client, shared.clone()));
                }
            }
        });
        Self { port, state }
    }
}

async fn carry(client: TcpStream, state: Arc<AtomicU8>) {
    let upstream = TcpStream::connect(("127.0.0.1", server().port())).await.unwrap();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), upstream.into_split());
    let responses = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..read]);
        let is_meant = text.contains("COMMIT") && text.contains("http web.tunnels.test:80");
        if is_meant
            && state.compare_exchange(ARMED, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            responses.abort();
        }
        if to_server.write_all(&buffer[..read]).await.is_err()
            || state.load(Ordering::SeqCst) == CLOSED
        {
            break;
        }
    }
    responses.abort();
}

#[tokio::test]
async fn a_name_whose_bind_failed_is_free_however_its_commit_ended() {
    let (database, breaker) = (new_database(), Breaker::start().await);
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", breaker.port, name_of(&database));
    let nodes = Nodes::on(&address.parse().unwrap(), &["a"]).await;
    let agent = nodes.agent(0).await;

    breaker.state.store(ARMED, Ordering::SeqCst);
    let (status, text) = nodes.tunnel(&agent, web()).await;
    assert!(status >= 400, "{text}");
    assert_eq!(breaker.state.load(Ordering::SeqCst), CLOSED);
    let count = "SELECT count(*) FROM ginnel.claims WHERE key = 'http web.tunnels.test:80'";
    assert_eq!(server().psql(&name_of(&database), count), "1", "the server has got it");
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
