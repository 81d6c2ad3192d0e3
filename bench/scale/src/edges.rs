//! Edges: what one costs, how soon a change of it is live, and whether requests notice the others.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Connection, get};
use crate::load::{self, Requests, percentile};
use crate::report::{Goal, Part};
use crate::subject::{Client, Subject, WRITERS};

const KIB: f64 = 1024.0;
/// How many policies are set one after the other.
const CHANGES: usize = 200;
/// How often each of the services is measured; they take turns.
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 16;
/// The routes of each edge: a path, and how it is matched.
const ROUTES: [(&str, &str); 3] =
    [("/", "path_prefix"), ("/api/", "path_prefix"), ("/health", "exact_path")];
/// What visitors ask for.
const PATHS: [&str; 3] = ["/shop", "/api/orders", "/health"];

/// A service with its edges.
struct Filled {
    subject: Subject,
    edges: usize,
    /// The path of a route of the edge in the middle.
    route: String,
}

/// All sizes together, so that they are measured in turns.
pub async fn measure(part: &mut Part, folder: &Path, sizes: &[usize], is_short: bool) {
    let backend = load::backend(64, false).await;
    let mut filled = Vec::new();
    for edges in sizes {
        filled.push(fill(part, folder, *edges, &backend).await);
    }
    for service in &mut filled {
        changes(part, service).await;
        restart(part, service, folder).await;
    }
    lookups(part, &filled, is_short).await;
    for service in filled {
        service.subject.remove().await;
    }
}

/// A service on a new database with so many edges.
async fn fill(part: &mut Part, folder: &Path, edges: usize, backend: &str) -> Filled {
    let subject = Subject::new(folder, &format!("edges-{edges}"), &[]).await;
    let client = subject.client();
    let backend = client.backend(backend).await;
    let (before, began) = (subject.memory(), Instant::now());
    let writers = (0..WRITERS).map(|writer| {
        let (client, backend) = (client.clone(), backend.clone());
        tokio::spawn(async move { write(client, backend, writer, edges).await })
    });
    let mut route = None;
    for writer in writers.collect::<Vec<_>>() {
        route = route.or(writer.await.expect("a writer"));
    }
    part.add("created, 64 calls at a time", "s", Goal::None, edges, began.elapsed().as_secs_f64());
    let each = (subject.memory() - before) / KIB / edges as f64;
    part.add("memory of an edge once created", "KiB", Goal::None, edges, each);
    Filled { subject, edges, route: route.expect("an edge in the middle") }
}

/// Creates every 64th edge; gives the route in the middle to whoever made it.
async fn write(client: Client, backend: String, writer: usize, edges: usize) -> Option<String> {
    let mut connection = client.connect().await;
    let mut middle = None;
    for edge in (writer..edges).step_by(WRITERS) {
        let body = json!({"hostports": [format!("{}:80", name(edge))]});
        let id = client.create(&mut connection, "/edges/https", &body).await;
        let path = format!("/edges/https/{id}/routes");
        for (matched, match_type) in ROUTES {
            let body = json!({
                "match_type": match_type, "match": matched, "backend": {"backend_id": backend},
            });
            let id = client.create(&mut connection, &path, &body).await;
            if edge == edges / 2 && matched == "/" {
                middle = Some(format!("{path}/{id}"));
            }
        }
    }
    middle
}

/// Replaces the policy of a route again and again: the time from the first byte of the call to the
/// response of a visitor, whose request is made right after the call and must meet the new policy.
async fn changes(part: &mut Part, service: &Filled) {
    let client = service.subject.client();
    let mut connection = client.connect().await;
    let mut visitor = Connection::new(&service.subject.http_address()).await.expect("a connection");
    let request = get(&name(service.edges / 2), "/");
    let path = format!("{}/policy", service.route);
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let expected = 400 + (change % 50) as u16;
        let put = client.request("PUT", &path, &policy(expected));
        let began = Instant::now();
        let (status, body) = connection.call(&put).await.expect("a response");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(body));
        let (status, _) = visitor.call(&request).await.expect("a response");
        times.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!(status, expected, "what is acknowledged is live");
    }
    let delete = client.request("DELETE", &path, &Value::Null);
    connection.call(&delete).await.expect("a response");
    let goal = Goal::AtMost(5.0);
    part.add("a change is live, p50", "ms", goal, service.edges, percentile(times.clone(), 50));
    part.add("a change is live, p99", "ms", goal, service.edges, percentile(times, 99));
}

fn policy(status: u16) -> Value {
    json!({"inbound": [{"actions": [{"type": "deny", "config": {"status_code": status}}]}]})
}

/// Starts the service again on the same database, and compares its memory with that of an empty one.
async fn restart(part: &mut Part, service: &mut Filled, folder: &Path) {
    let mut empty = Subject::new(folder, "empty", &[]).await;
    empty.restart().await;
    let before = empty.memory();
    empty.remove().await;
    service.subject.restart().await;
    let started_in = service.subject.started_in.as_secs_f64();
    part.add("start on the same database", "s", Goal::AtMost(3.0), service.edges, started_in);
    let each = (service.subject.memory() - before) / KIB / service.edges as f64;
    part.add("memory of an edge after the start", "KiB", Goal::AtMost(4.0), service.edges, each);
}

/// Requests for edges all over the table, in turns.
async fn lookups(part: &mut Part, services: &[Filled], is_short: bool) {
    let length = Duration::from_millis(if is_short { 500 } else { 2000 });
    let mut measured = vec![(Vec::new(), Vec::new()); services.len()];
    for _ in 0..ROUNDS {
        for (service, (rates, costs)) in services.iter().zip(&mut measured) {
            let edges = service.edges;
            let requests: Requests = Arc::new(move |number| {
                let edge = scattered(number) % edges;
                get(&name(edge), PATHS[number % PATHS.len()])
            });
            let before = service.subject.processor_time();
            let address = service.subject.http_address();
            let outcome = load::as_fast_as_possible(&address, CONNECTIONS, length, requests).await;
            assert_eq!(outcome.failed, 0, "every request gets its response");
            let used = service.subject.processor_time() - before;
            rates.push(outcome.rate());
            costs.push(used.as_secs_f64() * 1e6 / outcome.latencies.len() as f64);
        }
    }
    for (service, (rates, costs)) in services.iter().zip(measured) {
        let goal = Goal::Flat(0.2);
        part.add("requests of visitors", "1/s", goal, service.edges, percentile(rates, 50));
        part.add("processor of a request", "us", goal, service.edges, percentile(costs, 50));
    }
}

/// A number far from those of its neighbours.
fn scattered(number: usize) -> usize {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29) as usize
}

fn name(edge: usize) -> String {
    format!("edge-{edge}.example")
}
