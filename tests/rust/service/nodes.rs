//! Services that share a database on PostgreSQL.

use ginnel::service::store::{DatabaseLocation, PostgresOptions, StoreError};
use ginnel::service::{Error, Options, Service, new_admin_key};
use reqwest::Method;

use super::support::{Folder, Running};
use crate::engines;

fn on(database: &PostgresOptions) -> Options {
    Options { store: Some(database.clone()), ..Options::default() }
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
        node.stop(std::time::Duration::ZERO).await;
    }
    let again = Running::with(on(&database)).await;
    assert_eq!(certificate(&again.service), first);
    assert_eq!(again.service.gateway().authority().path(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_half_an_authority_gets_no_other() {
    let database = engines::new_database();
    Running::with(on(&database)).await.stop().await;
    let name = database.to_string();
    let name = name.rsplit('/').next().unwrap();
    engines::server().psql(name, "DELETE FROM ginnel.meta WHERE name = 'ca_key'");

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
    let reply = running.call_as(
        &key.0,
        Method::POST,
        "/bot_users",
        Some(serde_json::json!({"name": "robot"})),
    );
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
