//! Measures the service: writes, reads beside a bare handler, pages of short and long lists.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Json, Router};
use bench_service::{Connection, median, request};
use ginnel_service::{Options, Service, StoreSettings};
use serde_json::{Value, json};

const POLICY: &str = r#"{"description":"office network","metadata":"{\"team\":\"edge\"}"}"#;

#[tokio::main]
async fn main() {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let json = arguments.iter().position(|argument| argument == "--json");
    let json = json.and_then(|at| arguments.drain(at..).nth(1));
    let folder = arguments.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("ginnel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write to");
    println!("disk: {:.0} writes with fdatasync/s", syncs(&folder));
    let small = Subject::start(&folder.join("small.db")).await;
    let mut rows = writes(&small).await;
    rows.extend(reads(&small).await);
    small.service.stop(Duration::from_secs(5)).await;
    rows.extend(pages(&folder).await);
    if let Some(file) = json {
        std::fs::write(file, Value::from(rows).to_string()).expect("a file to write to");
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
    async fn start(path: &Path) -> Self {
        let store = StoreSettings { path: Some(path.to_owned()), ..StoreSettings::default() };
        let options = Options { store, ..Options::default() };
        let service = Service::start(options).await.expect("a service");
        let host = service.url().trim_start_matches("http://").to_owned();
        let key = service.api_key().expect("a new database").0.clone();
        Self { service, host, key }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        request(method, path, &self.host, &self.key, body)
    }

    /// Creates so many resources, 64 at a time.
    async fn fill(&self, rows: usize) {
        let create = self.request("POST", "/ip_policies", POLICY);
        let writers = (0..64).map(|writer| {
            let (host, create) = (self.host.clone(), create.clone());
            tokio::spawn(async move {
                let mut connection = Connection::new(&host).await;
                for _ in (writer..rows).step_by(64) {
                    connection.call(&create).await;
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer");
        }
    }
}

fn syncs(folder: &Path) -> f64 {
    let mut file = File::create(folder.join("sync")).expect("a file");
    let started = Instant::now();
    for _ in 0..300 {
        file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).expect("a disk");
    }
    300.0 / started.elapsed().as_secs_f64()
}

async fn writes(subject: &Subject) -> Vec<Value> {
    let mut rows = Vec::new();
    let create = subject.request("POST", "/ip_policies", POLICY);
    for writers in [64, 1] {
        let mut rates = Vec::new();
        for _ in 0..3 {
            rates.push(rate(&subject.host, &create, writers, 2.0).await);
        }
        let name = format!("{writers} writers");
        rows.push(json!({"name": name, "unit": "creates/s", "samples": rates}));
        println!("{name}: {:.0} creates/s", median(rates));
    }
    rows
}

async fn reads(subject: &Subject) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut connection = Connection::new(&subject.host).await;
    let made = connection.call(&subject.request("POST", "/ip_policies", POLICY)).await;
    let made: Value = serde_json::from_slice(made).expect("JSON");
    let path = format!("/ip_policies/{}", made["id"].as_str().expect("an identifier"));
    let read = subject.request("GET", &path, "");
    let bare = bare(made).await;
    for connections in [1, 16, 64] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            ours.push(rate(&subject.host, &read, connections, 0.7).await);
            theirs.push(rate(&bare, &read, connections, 0.7).await);
        }
        let name = format!("{connections} readers");
        rows.push(json!({
            "name": name, "unit": "reads/s", "samples": ours, "peer": "bare axum", "peer_samples": theirs,
        }));
        let (ours, theirs) = (median(ours), median(theirs));
        let ratio = ours / theirs;
        println!("{name}: {ours:.0}/s, bare axum {theirs:.0}/s, ratio {ratio:.2}");
    }
    rows
}

/// A server that does nothing but write this object as JSON; gives its address.
async fn bare(object: Value) -> String {
    let handler = move || {
        let object = object.clone();
        async move { Json(object) }
    };
    let router = Router::new().route("/ip_policies/{id}", get(handler));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn pages(folder: &Path) -> Vec<Value> {
    let mut pages = Vec::new();
    let mut figures = Vec::new();
    for rows in [1_000, 100_000] {
        let subject = Subject::start(&folder.join(format!("{rows}.db"))).await;
        subject.fill(rows).await;
        let mut connection = Connection::new(&subject.host).await;
        let first = subject.request("GET", "/ip_policies?limit=100", "");
        let middle = middle(&subject, &mut connection, rows).await;
        let middle = subject.request("GET", &middle, "");
        let first = latency(&mut connection, &first).await;
        let middle = latency(&mut connection, &middle).await;
        println!("page of 100 of {rows}: {first:.0} us, from the middle {middle:.0} us");
        for (place, time) in [("first", first), ("middle", middle)] {
            let name = format!("{place} page of 100 of {rows}");
            pages.push(
                json!({"name": name, "unit": "us", "samples": [time], "more_is_better": false}),
            );
        }
        figures.push((first, middle));
        subject.service.stop(Duration::from_secs(5)).await;
    }
    let (first, middle) = (figures[1].0 / figures[0].0, figures[1].1 / figures[0].1);
    println!("long list / short list: {first:.2}, from the middle {middle:.2}");
    pages
}

/// The path of a page from the middle of the list.
async fn middle(subject: &Subject, connection: &mut Connection, rows: usize) -> String {
    let mut path = "/ip_policies?limit=100".to_owned();
    for _ in 0..rows / 200 {
        let page = connection.call(&subject.request("GET", &path, "")).await;
        let page: Value = serde_json::from_slice(page).expect("JSON");
        let next = page["next_page_uri"].as_str().expect("another page");
        path = next[next.find("/ip_policies").expect("the same list")..].to_owned();
    }
    path
}

/// Calls per second with so many connections at work.
async fn rate(host: &str, request: &[u8], connections: usize, seconds: f64) -> f64 {
    let started = Instant::now();
    let end = started + Duration::from_secs_f64(seconds);
    let workers = (0..connections).map(|_| {
        let (host, request) = (host.to_owned(), request.to_vec());
        tokio::spawn(async move {
            let mut connection = Connection::new(&host).await;
            let mut calls = 0;
            while Instant::now() < end {
                connection.call(&request).await;
                calls += 1;
            }
            calls
        })
    });
    let mut calls = 0;
    for worker in workers.collect::<Vec<_>>() {
        calls += worker.await.expect("a worker");
    }
    f64::from(calls) / started.elapsed().as_secs_f64()
}

/// The median time of a call, in microseconds.
async fn latency(connection: &mut Connection, request: &[u8]) -> f64 {
    let mut times = Vec::new();
    for _ in 0..1000 {
        let started = Instant::now();
        connection.call(request).await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    median(times)
}
