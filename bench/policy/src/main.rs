//! What traffic policies cost: processor time and allocations.

#[path = "../../../tests/rust/policy/generate.rs"]
mod generate;
mod harm;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use chrono::Utc;
use ginnel_policy::ip_rules::IpRules;
use ginnel_policy::secrets::SecretName;
use ginnel_policy::{
    AddressLookup, EndpointFacts, Exchange, Phase, Policy, PolicyState, Request, Scope,
    StepOutcome, Verdict, VisitorConnection, World,
};
use serde_json::{Value, json};

/// Counts what is allocated, once it is told to: that makes each allocation dearer.
struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Relaxed) {
            count(layout.size());
        }
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if IS_COUNTING.load(Relaxed) {
            LIVE.fetch_sub(layout.size() as u64, Relaxed);
        }
        // SAFETY: the caller keeps to the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(size: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    let live = LIVE.fetch_add(size as u64, Relaxed) + size as u64;
    PEAK.fetch_max(live, Relaxed);
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 21;

struct Still(PolicyState);

impl World for Still {
    fn ip_policy(&self, _: &str) -> Arc<IpRules> {
        Arc::default()
    }

    fn secret(&self, _: &SecretName) -> Option<Arc<str>> {
        None
    }

    fn state(&self) -> &PolicyState {
        &self.0
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("harm") {
        IS_COUNTING.store(true, Relaxed);
        return harm::run();
    }
    let mut rows = vec![compile()];
    IS_COUNTING.store(true, Relaxed);
    let add =
        json!({"actions": [{"type": "add-headers", "config": {"headers": {"x-rule": "five"}}}]});
    let typical: Vec<Value> = misses(1).into_iter().chain([add]).collect();
    rows.extend(run("typical, 5 rules", typical));
    rows.extend(run("no rules", vec![]));
    for times in [1, 5, 10, 20] {
        rows.extend(run(&format!("misses, {} rules", 4 * times), misses(times)));
    }
    for source in EXPRESSIONS {
        let rule = json!({"expressions": [source], "actions": [{"type": "deny"}]});
        rows.extend(run(&format!("each: {source}"), vec![rule]));
    }
    if let Some(file) = json_file() {
        std::fs::write(file, Value::from(rows).to_string()).expect("a file to write to");
    }
}

/// The file that `--json` names.
fn json_file() -> Option<String> {
    let mut arguments = std::env::args().skip(1);
    arguments.find(|argument| argument == "--json").and_then(|_| arguments.next())
}

fn row(name: &str, unit: &str, samples: Vec<f64>) -> Value {
    json!({"name": name, "unit": unit, "samples": samples, "more_is_better": false})
}

const EXPRESSIONS: &[&str] = &[
    "req.url.path.startsWith('/admin')",
    "req.method == 'POST'",
    "req.method in ['PUT', 'DELETE']",
    "conn.client_ip in ['192.0.2.1', '192.0.2.2']",
    "inCidrRange(conn.client_ip, '10.0.0.0/8')",
    "req.headers['user-agent'][0].contains('bot')",
    "req.headers['user-agent'][0].matches('(?i)(bot|crawl|spider)')",
    "req.headers['user-agent'].exists(agent, agent.contains('bot'))",
    "hasReqHeader('x-debug')",
    "'x-debug' in req.headers",
    "getReqCookie('session').value == 'x'",
    "getQueryParam('page')[0] == '7'",
    "req.content_length > 1000000",
    "req.url.contains('/v9')",
];

fn misses(times: usize) -> Vec<Value> {
    let rules = [
        json!(["req.url.path.startsWith('/admin')", "!(conn.client_ip in ['192.0.2.1'])"]),
        json!(["req.headers['user-agent'][0].matches('(?i)(bot|crawl|spider)')"]),
        json!(["req.method in ['PUT', 'DELETE'] && req.content_length > 1000000"]),
        json!(["hasReqHeader('x-debug')", "req.url.query_params['debug'][0] == 'on'"]),
    ];
    let rule =
        |expressions: &Value| json!({"expressions": expressions, "actions": [{"type": "deny"}]});
    rules.iter().cycle().take(4 * times).map(rule).collect()
}

/// Compiles 2,000 different rules, 100 a document.
fn compile() -> Value {
    let document = |number: usize| {
        let rule = |index: usize| {
            let id = number * 100 + index;
            json!({
                "name": format!("rule {id}"),
                "expressions": [
                    format!("req.url.path.startsWith('/v{id}/') && req.method == 'GET'"),
                    format!("req.headers['user-agent'][0].contains('agent-{id}')"),
                ],
                "actions": [
                    {"type": "add-headers", "config": {"headers": {"x-rule": format!("{id} ${{req.host}}")}}},
                ],
            })
        };
        json!({"on_http_request": (0..100).map(rule).collect::<Vec<_>>()})
    };
    let documents: Vec<_> = (0..20).map(document).collect();
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = process_time();
            for document in &documents {
                let policy = Policy::compile(document, Scope::HttpTunnel).expect("valid");
                black_box(&policy);
            }
            process_time() - start
        })
        .collect();
    times.sort_unstable();
    let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
    println!(
        "compile 2,000 rules: {:.1} ms ({:.1} to {:.1})",
        median as f64 / 1e6,
        least as f64 / 1e6,
        most as f64 / 1e6
    );
    row("compile 2,000 rules", "ms", times.iter().map(|time| *time as f64 / 1e6).collect())
}

fn run(name: &str, rules: Vec<Value>) -> [Value; 2] {
    let document = json!({"on_http_request": rules});
    let policy = Policy::compile(&document, Scope::HttpTunnel).expect("valid");
    let world = Still(PolicyState::default());
    let connection = Arc::new(VisitorConnection {
        client: "203.0.113.9:40000".parse().expect("an address"),
        server: "127.0.0.1:443".parse().expect("an address"),
        region: String::new(),
        started: Utc::now(),
        tls: None,
        lookup: AddressLookup::default(),
    });
    let endpoint = Arc::new(EndpointFacts::default());
    const COUNT: usize = 2000;
    let mut times = Vec::new();
    let mut allocations = 0;
    for _ in 0..ROUNDS {
        let mut exchanges: Vec<_> = (0..COUNT)
            .map(|_| Exchange::from_request(connection.clone(), endpoint.clone(), request()))
            .collect();
        let (start, before) = (thread_time(), ALLOCATIONS.load(Relaxed));
        for exchange in &mut exchanges {
            match policy.start_phase(Phase::Request).step(exchange, &world) {
                StepOutcome::Done(Verdict::Continue) => {}
                other => panic!("{other:?}"),
            }
        }
        times.push((thread_time() - start) as f64 / COUNT as f64);
        allocations = ALLOCATIONS.load(Relaxed) - before;
    }
    times.sort_unstable_by(f64::total_cmp);
    println!(
        "{name}: {:.0} ns ({:.0} to {:.0}), {:.1} allocations",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1],
        allocations as f64 / COUNT as f64
    );
    let allocations = vec![allocations as f64 / COUNT as f64];
    [row(name, "ns", times), row(&format!("{name}, allocations"), "allocations", allocations)]
}

fn request() -> Request {
    let (head, ()) = http::Request::get("/v1/users/7?page=2")
        .header("host", "app.example.com")
        .header(
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        )
        .header("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
        .header("accept-encoding", "gzip, deflate, br, zstd")
        .header("accept-language", "en-US,en;q=0.5")
        .header("cookie", "session=abc; theme=dark")
        .header("x-forwarded-for", "203.0.113.9")
        .body(())
        .expect("a request")
        .into_parts();
    Request::new(head, "https", chrono::DateTime::UNIX_EPOCH)
}

fn thread_time() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Compiling uses a thread of its own.
fn process_time() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes what it is given.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
