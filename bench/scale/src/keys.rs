//! Rows: whether calls notice how many API keys there are.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::load::{self, Requests, percentile};
use crate::report::{Goal, Part};
use crate::subject::{Client, Subject, WRITERS};

const ROUNDS: usize = 7;
const CONNECTIONS: usize = 16;
/// How many rows a page has.
const PAGE: usize = 100;

/// A service with its rows.
struct Filled {
    subject: Subject,
    keys: usize,
    /// A call for one key, one for a page of other rows, and one for a page of keys from the middle,
    /// where there are enough.
    calls: Vec<(&'static str, Vec<u8>)>,
}

/// All sizes together, so that they are measured in turns.
pub async fn measure(part: &mut Part, folder: &Path, sizes: &[usize], is_short: bool) {
    let mut filled = Vec::new();
    for keys in sizes {
        filled.push(fill(part, folder, *keys).await);
    }
    rates(part, &filled, is_short).await;
    for service in filled {
        service.subject.remove().await;
    }
}

/// A service with so many keys, and a page of IP policies.
async fn fill(part: &mut Part, folder: &Path, keys: usize) -> Filled {
    let subject = Subject::new(folder, &format!("keys-{keys}"), &[]).await;
    let client = subject.client();
    create(&client, "/ip_policies", PAGE).await;
    let began = Instant::now();
    // The first is that of the calls.
    let ids = create(&client, "/api_keys", keys - 1).await;
    part.add("created, 64 calls at a time", "s", Goal::None, keys, began.elapsed().as_secs_f64());
    let get = |path: String| client.request("GET", &path, &Value::Null);
    let one = ids.get(ids.len() / 2).cloned();
    let one = match one {
        Some(id) => id,
        None => first_key(&client).await,
    };
    let mut calls = vec![
        ("get of one key", get(format!("/api_keys/{one}"))),
        ("page of 100 other rows", get(format!("/ip_policies?limit={PAGE}"))),
    ];
    if keys >= 2 * PAGE + 2 {
        calls.push(("page of 100 keys", get(format!("/api_keys?limit={PAGE}&before_id={one}"))));
    }
    Filled { subject, keys, calls }
}

async fn first_key(client: &Client) -> String {
    let mut connection = client.connect().await;
    let list = client.request("GET", "/api_keys", &Value::Null);
    let (_, body) = connection.call(&list).await.expect("a response");
    let page: Value = serde_json::from_slice(body).expect("JSON");
    page["keys"][0]["id"].as_str().expect("the key of the calls").to_owned()
}

/// Creates so many rows; returns their identifiers, about in the order of their creation.
async fn create(client: &Client, path: &'static str, count: usize) -> Vec<String> {
    let writers = (0..WRITERS).map(|writer| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut connection = client.connect().await;
            let mut ids = Vec::new();
            for row in (writer..count).step_by(WRITERS) {
                let body = json!({"description": format!("row {row}")});
                ids.push((row, client.create(&mut connection, path, &body).await));
            }
            ids
        })
    });
    let mut all = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        all.extend(writer.await.expect("a writer"));
    }
    all.sort();
    all.into_iter().map(|(_, id)| id).collect()
}

async fn rates(part: &mut Part, services: &[Filled], is_short: bool) {
    let length = Duration::from_millis(if is_short { 300 } else { 1000 });
    for call in 0..services.iter().map(|service| service.calls.len()).max().unwrap_or(0) {
        let mut measured = vec![(Vec::new(), Vec::new()); services.len()];
        for _ in 0..ROUNDS {
            for (service, (rates, costs)) in services.iter().zip(&mut measured) {
                let Some((_, request)) = service.calls.get(call).cloned() else { continue };
                let requests: Requests = Arc::new(move |_| request.clone());
                let (client, before) = (service.subject.client(), service.subject.processor_time());
                let outcome =
                    load::as_fast_as_possible(client.address(), CONNECTIONS, length, requests)
                        .await;
                assert_eq!(outcome.failed, 0, "every call gets its response");
                let used = service.subject.processor_time() - before;
                rates.push(outcome.rate());
                costs.push(used.as_secs_f64() * 1e6 / outcome.latencies.len() as f64);
            }
        }
        for (service, (rates, costs)) in services.iter().zip(measured) {
            let Some((name, _)) = service.calls.get(call) else { continue };
            let goal = Goal::Flat(0.1);
            part.add(name, "1/s", goal, service.keys, percentile(rates, 50));
            let name = format!("processor, {name}");
            part.add(&name, "us", Goal::None, service.keys, percentile(costs, 50));
        }
    }
}
