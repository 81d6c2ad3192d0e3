//! What a request costs in allocations, which depends on nothing but the code.
//!
//! Each path runs on a runtime of one thread, whose allocations are counted; visitors and upstreams are
//! threads of their own. A path that grows by more than 3 % fails. When one shrinks, write the new number
//! into [`PATHS`], so that it cannot grow back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use ginnel_api::remote::api_keys::{ApiKey, Get};
use ginnel_api::{self as api, Secret};
use ginnel_client::{Client, ClientOptions};

use serde_json::json;

use crate::agent::support::{Whole, online};
use crate::gateway::configured::EdgeFixture;
use crate::gateway::support::{Direct, bound, edges, host_of};
use crate::service::support::Running;

/// Each path, and the allocations of one request on it.
const PATHS: &[(&str, f64)] = &[
    ("gateway GET", 0.0),
    ("gateway POST", 0.0),
    ("edge GET", 1.0),
    ("edge GET with a policy", 2.0),
    // Six of them are a copy, for where a kept connection closes unanswered.
    ("edge GET with a policy on the full path", 41.0),
    ("tunnel GET", 6.0),
    ("tunnel GET with capture", 13.1),
    ("tunnel POST with capture", 14.4),
    ("management API GET", 32.0),
    ("blocking client GET", 12.0),
];

/// How much more than its number a path may take.
const MAX_GROWTH: f64 = 1.03;
/// Timers and heartbeats allocate as well, now and then.
const NOISE: f64 = 0.1;

const WARM_UP: usize = 200;
const REQUESTS: usize = 1000;
const BODY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps to the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A client that sends one request again and again over one connection, without allocating here.
struct Visitor {
    stream: TcpStream,
    request: String,
    buffer: Vec<u8>,
}

impl Visitor {
    fn to(address: &str, request: String) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, request, buffer: vec![0; 65_536] }
    }

    fn visit(&mut self, times: usize) {
        for _ in 0..times {
            self.stream.write_all(self.request.as_bytes()).unwrap();
            let head = read_message(&mut self.stream, &mut self.buffer).unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        }
    }
}

/// Reads one message, and gives its head.
fn read_message(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<String> {
    let mut filled = 0;
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(count) if count > 0 => filled += count,
            _ => return None,
        }
        let Some(head) = buffer[..filled].windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
        let length = text
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            })
            .unwrap_or(0);
        if filled >= head + 4 + length {
            return Some(text);
        }
    }
}

/// An upstream that answers everything with the same 64 bytes.
fn upstream() -> SocketAddr {
    upstream_with(BODY.to_owned())
}

fn upstream_with(body: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let body = body.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                while read_message(&mut stream, &mut buffer).is_some() {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}", body.len());
                    let answer = format!("{head}\r\nContent-Type: application/json\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

fn get(host: &str) -> String {
    format!(
        "GET /a/path?with=query HTTP/1.1\r\nHost: {host}\r\nUser-Agent: count/1\r\nAccept: */*\r\n\r\n"
    )
}

fn post(host: &str) -> String {
    let body = BODY.repeat(16);
    let length = body.len();
    format!(
        "POST /hook HTTP/1.1\r\nHost: {host}\r\nUser-Agent: count/1\r\nContent-Length: {length}\r\n\
         Content-Type: application/json\r\n\r\n{body}"
    )
}

/// Sends requests, and holds what they take to the number of the path.
async fn count(path: &str, address: &str, request: String) {
    let mut visitor = Visitor::to(address, request);
    let mut visitor = tokio::task::spawn_blocking(move || {
        visitor.visit(WARM_UP);
        visitor
    })
    .await
    .unwrap();
    let before = ALLOCATIONS.get();
    tokio::task::spawn_blocking(move || visitor.visit(REQUESTS)).await.unwrap();
    hold(path, before);
}

/// Holds what this thread has allocated since then to the number of the path.
fn hold(path: &str, before: u64) {
    let each = (ALLOCATIONS.get() - before) as f64 / REQUESTS as f64;
    println!("{path}: {each:.2} allocations a request");
    let (_, known) = PATHS.iter().find(|(name, _)| *name == path).unwrap();
    let most = known * MAX_GROWTH + NOISE;
    assert!(each <= most, "{path} takes {each:.2} allocations a request, not {known:.2}");
}

#[tokio::test]
async fn the_gateway_alone() {
    let edges = edges().await;
    let endpoint = bound(&edges, Direct::to(upstream())).await;
    let host = host_of(endpoint.url());

    count("gateway GET", &host, get(&host)).await;
    count("gateway POST", &host, post(&host)).await;
}

#[tokio::test]
async fn an_edge_with_a_static_backend() {
    let site = EdgeFixture::start().await;
    let backend = site.at(upstream()).await;
    let plain = site.edge("plain.test").await;
    let [policed, examined] = [site.edge("policed.test").await, site.edge("examined.test").await];
    site.route(&plain, "/", json!({"backend": backend})).await;
    let rule = json!({
        "expressions": ["req.url.path.startsWith('/admin')", "!(conn.client_ip in ['192.0.2.1'])"],
        "actions": [{"type": "deny"}],
    });
    let add =
        json!({"actions": [{"type": "add-headers", "config": {"headers": {"x-via": "edge"}}}]});
    let policy = json!({"inbound": [rule, add]});
    // What an endpoint is called is not in a head.
    let examining = json!({"inbound": [rule, {"expressions": ["endpoint.host != ''"], "actions": add["actions"]}]});
    site.route(&policed, "/", json!({"backend": backend, "policy": policy})).await;
    site.route(&examined, "/", json!({"backend": backend, "policy": examining})).await;
    let address = site.service.service.gateway().http_address().unwrap().to_string();

    count("edge GET", &address, get("plain.test")).await;
    count("edge GET with a policy", &address, get("policed.test")).await;
    count("edge GET with a policy on the full path", &address, get("examined.test")).await;
}

#[tokio::test]
async fn a_tunnel() {
    let whole = Whole::start().await;
    online(&whole.agent).await;
    for (path, inspect) in [("tunnel GET", false), ("tunnel GET with capture", true)] {
        let definition = json!({
            "name": path.replace(' ', "-"), "proto": "http", "addr": upstream().port(), "inspect": inspect,
        });
        let (status, tunnel) = whole.start_tunnel(definition).await;
        assert_eq!(status, 201, "{tunnel}");
        let host = host_of(tunnel["public_url"].as_str().unwrap());
        count(path, &host, get(&host)).await;
        if inspect {
            count("tunnel POST with capture", &host, post(&host)).await;
        }
    }
}

#[tokio::test]
async fn a_read_of_the_management_api() {
    let running = Running::start().await;
    let id = running.create("/ip_policies", json!({"description": "office"})).await;
    let address = running.service.url().trim_start_matches("http://").to_owned();
    let request = format!(
        "GET /ip_policies/{id} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Ngrok-Version: 2\r\n\r\n",
        running.key
    );

    count("management API GET", &address, request).await;
}

#[test]
fn a_call_of_the_blocking_client() {
    let address = upstream_with(format!(
        r#"{{"id":"ak_x","uri":"/api_keys/ak_x","created_at":"2026-01-01T00:00:00Z",                                        "description":"{BODY}","metadata":"","owner_id":null,"token":null}}"#
    ));
    let options = ClientOptions {
        base_url: Some(format!("http://{address}")),
        api_key: Some(Secret("key".to_owned())),
        ignore_environment: true,
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    let get = || {
        let call = api::encode_operation(&Get { id: "ak_x".to_owned() }).unwrap();
        let response = client.send_blocking(call, None, || false).unwrap().unwrap();
        let key: ApiKey = response.error_for_status().unwrap().decode().unwrap();
        assert_eq!(key.id, "ak_x");
    };

    (0..WARM_UP).for_each(|_| get());
    let before = ALLOCATIONS.get();
    (0..REQUESTS).for_each(|_| get());
    hold("blocking client GET", before);
}
