//! Services that share a database on PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ginnel_service::{ClusterSettings, Error, Options, Service, StoreSettings, new_admin_key};
use ginnel_store::{DatabaseLocation, PostgresOptions, StoreError};

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::support::{Folder, Running};
use crate::engines;

/// A way to the server over which nothing comes or goes for as long as it is closed.
pub(super) struct Gate {
    pub port: u16,
    is_closed: Arc<AtomicBool>,
}

impl Gate {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_closed = Arc::<AtomicBool>::default();
        let closed = is_closed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(forward(from_client, to_server, closed.clone()));
                tokio::spawn(forward(from_server, to_client, closed.clone()));
            }
        });
        Self { port, is_closed }
    }

    pub fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_closed: Arc<AtomicBool>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        while is_closed.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

fn name_of(database: &PostgresOptions) -> String {
    let address = database.to_string();
    address.rsplit('/').next().unwrap().to_owned()
}

/// Options of a node with a name of its own.
fn on(database: &PostgresOptions) -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("node-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let cluster = ClusterSettings { node_name: Some(name), ..ClusterSettings::default() };
    let store = StoreSettings { server: Some(database.clone()), ..StoreSettings::default() };
    Options { store, cluster, ..Options::default() }
}

fn certificate(service: &Service) -> String {
    service.gateway().authority().pem().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_have_one_authority_and_one_admin_key() {
    let database = engines::new_database();

    let starting = (0..3).map(|_| tokio::spawn(Service::start(on(&database))));
    let mut nodes = Vec::new();
    for node in starting.collect::<Vec<_>>() {
        nodes.push(node.await.unwrap().unwrap());
    }

    let first = certificate(&nodes[0]);
    assert!(nodes.iter().all(|node| certificate(node) == first));
    let with_key =
        nodes.iter().filter(|node| node.api_key().is_some() && node.authtoken().is_some());
    assert_eq!(with_key.count(), 1);
    for node in nodes {
        node.stop(Duration::ZERO).await;
    }
    let again = Running::with(on(&database)).await;
    assert_eq!(certificate(&again.service), first);
    assert_eq!(again.service.gateway().authority().path(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_half_an_authority_gets_no_other() {
    let database = engines::new_database();
    Running::with(on(&database)).await.stop().await;
    engines::server().psql(&name_of(&database), "DELETE FROM ginnel.meta WHERE name = 'ca_key'");

    let started = Service::start(on(&database)).await;

    let message = started.err().unwrap().to_string();
    assert!(message.contains("the key of its authority is missing"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_admin_key_is_made_while_services_run() {
    let folder = Folder::new();
    let database = engines::new_database();
    let running = Running::with(on(&database)).await;
    let location = DatabaseLocation::Server(Box::new(database));
    let out = folder.file("admin.key");

    let key = new_admin_key(&location, Some(&out)).await.unwrap();

    assert_eq!(std::fs::read_to_string(&out).unwrap().trim(), key.0);
    let reply = running.call_as(&key.0, Method::POST, "/bot_users", Some(json!({"name": "robot"})));
    assert_eq!(reply.await.status, 201);
    let refused = new_admin_key(&location, Some(&out)).await;
    assert!(matches!(refused, Err(Error::TokenFile { .. })), "the file is there");
    assert_eq!(std::fs::read_to_string(&out).unwrap().trim(), key.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_tables_gets_no_admin_key() {
    let database = engines::new_database();
    let location = DatabaseLocation::Server(Box::new(database));

    let refused = new_admin_key(&location, None).await;

    assert!(matches!(refused, Err(Error::Store(StoreError::Missing(_)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_sees_no_changes_believes_no_key_that_it_remembers() {
    let database = engines::new_database();
    let gate = Gate::start(engines::server().port()).await;
    let address = format!("postgres://ginnel@127.0.0.1:{}/{}", gate.port, name_of(&database));
    let other = Running::with(on(&database)).await;
    let cut_off = Running::with(on(&address.parse().unwrap())).await;
    let key = other.post("/api_keys", json!({})).await;
    let (id, token) = (key.text("id"), key.text("token"));
    let known = cut_off.call_as(&token, Method::GET, "/ip_policies", None).await;
    assert_eq!(known.status, 200);

    gate.close(true);
    other.delete(&format!("/api_keys/{id}")).await;
    // What is promised of revoked keys.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = cut_off.call_as(&token, Method::POST, "/ip_policies", Some(json!({})));
    let asked = tokio::time::timeout(Duration::from_secs(1), asked).await;
    assert!(asked.is_err(), "who calls must be looked up: {asked:?}");
    gate.close(false);

    // Until it has news again, it says that it knows nothing.
    let began = Instant::now();
    let refused = loop {
        let refused = cut_off.call_as(&token, Method::GET, "/ip_policies", None).await;
        if refused.code() != 9728 || began.elapsed() > Duration::from_secs(20) {
            break refused;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(refused.status, 403, "{:?}", refused.json);
    let listed = other.call(Method::GET, "/ip_policies", None).await;
    assert_eq!(listed.json["ip_policies"].as_array().unwrap().len(), 0);
}
