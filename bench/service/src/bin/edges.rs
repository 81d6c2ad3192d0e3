//! Measures how soon a change of an edge is live: one among so many edges, each with a route.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bench_service::{Connection, median, request};
use ginnel_service::{Options, Service, StoreSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How many policies are set one after the other.
const CHANGES: usize = 200;
/// How many calls fill a service at a time.
const WRITERS: usize = 64;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let edges = arguments.next().map_or(100_000, |text| text.parse().expect("a number of edges"));
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("ginnel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write to");
    for (name, path) in [("in memory", None), ("on disk", Some(folder.join("edges.db")))] {
        measure(name, path, edges).await;
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// A service with what is needed to call it.
struct Subject {
    service: Service,
    host: String,
    key: String,
}

impl Subject {
    fn request(&self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        request(method, path, &self.host, &self.key, &body.to_string())
    }
}

async fn measure(name: &str, path: Option<PathBuf>, edges: usize) {
    let store = StoreSettings { path, ..StoreSettings::default() };
    let options = Options { store, ..Options::default() };
    let service = Service::start(options).await.expect("a service");
    let host = service.url().trim_start_matches("http://").to_owned();
    let key = service.api_key().expect("a new database").0.clone();
    let subject = Subject { service, host, key };
    let started = Instant::now();
    let route = fill(&subject, edges).await;
    println!("{name}: {edges} edges in {:.1} s", started.elapsed().as_secs_f64());
    for rules in [1, 100] {
        let (mut times, largest) = change(&subject, &route, rules).await;
        times.sort_by(f64::total_cmp);
        let late = times[times.len() * 99 / 100];
        let middle = median(times);
        println!(
            "{name}, {rules} rules: a policy is live after {middle:.2} ms, 99 % after {late:.2} ms, \
             all after {largest:.2} ms"
        );
    }
    subject.service.stop(Duration::from_secs(5)).await;
}

/// Creates the edges; gives the path of the route of the one in the middle.
async fn fill(subject: &Subject, edges: usize) -> String {
    let mut connection = Connection::new(&subject.host).await;
    let answer = json!({"status_code": 200, "body": "here"});
    let made = create(subject, &mut connection, "/backends/http_response", &answer).await;
    let backend = id(&made);
    let writers = (0..WRITERS).map(|writer| {
        let (host, key) = (subject.host.clone(), subject.key.clone());
        let backend = backend.clone();
        tokio::spawn(async move {
            let mut connection = Connection::new(&host).await;
            let mut middle = None;
            for edge in (writer..edges).step_by(WRITERS) {
                let body = json!({"hostports": [format!("{}:80", name(edge))]}).to_string();
                let made = request("POST", "/edges/https", &host, &key, &body);
                let made = connection.call(&made).await;
                let path = format!("/edges/https/{}/routes", id(made));
                let body = json!({
                    "match_type": "path_prefix", "match": "/", "backend": {"backend_id": backend},
                    "policy": policy(&format!("edge {edge}"), 1, 404),
                });
                let body = body.to_string();
                let made = connection.call(&request("POST", &path, &host, &key, &body)).await;
                if edge == edges / 2 {
                    middle = Some(format!("{path}/{}", id(made)));
                }
            }
            middle
        })
    });
    let mut middle = None;
    for writer in writers.collect::<Vec<_>>() {
        middle = middle.or(writer.await.expect("a writer"));
    }
    middle.expect("an edge in the middle")
}

/// Replaces the policy of a route again and again; gives the times, in milliseconds, from the first
/// byte of a call to the first request of a visitor that meets the new policy.
async fn change(subject: &Subject, route: &str, rules: usize) -> (Vec<f64>, f64) {
    let mut connection = Connection::new(&subject.host).await;
    let address = subject.service.gateway().http_address().expect("a listener").to_string();
    let mut visitor = Visitor::new(&address, &name_of_middle(subject, route).await).await;
    let path = format!("{route}/policy");
    let mut times = Vec::new();
    for change in 0..CHANGES {
        let status = 400 + (change % 50) as u16;
        let set = policy(&format!("change {change}"), rules, status);
        let set = subject.request("PUT", &path, &set);
        let started = Instant::now();
        connection.call(&set).await;
        let seen = visitor.status().await;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        assert_eq!(seen, status, "what is acknowledged is live");
    }
    let largest = times.iter().copied().fold(0.0, f64::max);
    (times, largest)
}

async fn name_of_middle(subject: &Subject, route: &str) -> String {
    let mut connection = Connection::new(&subject.host).await;
    let edge = route.split("/routes").next().expect("an edge");
    let get = request("GET", edge, &subject.host, &subject.key, "");
    let edge = connection.call(&get).await;
    let edge: Value = serde_json::from_slice(edge).expect("JSON");
    edge["hostports"][0].as_str().expect("a host").trim_end_matches(":80").to_owned()
}

async fn create(subject: &Subject, to: &mut Connection, path: &str, body: &Value) -> Vec<u8> {
    to.call(&subject.request("POST", path, body)).await.to_vec()
}

fn name(edge: usize) -> String {
    format!("edge-{edge}.example")
}

fn id(made: &[u8]) -> String {
    let made: Value = serde_json::from_slice(made).expect("JSON");
    made["id"].as_str().expect("an identifier").to_owned()
}

/// Rules that do not match, and one that answers with a status.
fn policy(text: &str, rules: usize, status: u16) -> Value {
    let mut all: Vec<Value> = (1..rules)
        .map(|rule| {
            let unlike = format!("req.url.path == '/{text}/{rule}' || 'x-{rule}' in req.headers");
            json!({"name": text, "expressions": [unlike], "actions": [{"type": "deny"}]})
        })
        .collect();
    let config = json!({"status_code": status});
    all.push(json!({"name": text, "actions": [{"type": "deny", "config": config}]}));
    json!({"inbound": all})
}

/// A visitor of one host, on one connection.
struct Visitor {
    stream: TcpStream,
    request: Vec<u8>,
}

impl Visitor {
    async fn new(address: &str, host: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gateway accepts");
        stream.set_nodelay(true).expect("a socket");
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes();
        Self { stream, request }
    }

    /// The status of one request.
    async fn status(&mut self) -> u16 {
        self.stream.write_all(&self.request).await.expect("the gateway reads");
        let mut answer = vec![0; 4096];
        let mut read = 0;
        loop {
            read += self.stream.read(&mut answer[read..]).await.expect("an answer");
            let text = String::from_utf8_lossy(&answer[..read]);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("a number")) {
                return head[9..12].parse().expect("a status");
            }
        }
    }
}
