//! Measures the store on PostgreSQL beside SQLite and pgbench: writes, over a network and of several
//! nodes, the propagation of changes, reads, and a node that is stopped.

mod node;
mod proxy;
mod server;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench_service::{Connection, median, request};
use ginnel_store::Store;
use ginnel_service::{Options, Service, StoreSettings};
use node::{JobShape, Node, Note};
use proxy::Network;
use serde_json::{Value, json};
use server::Server;

const ROUNDS: usize = 5;
const SECONDS: f64 = 2.0;
/// How often the writers of a round take turns, and how long one has: the disk is slow for seconds on end,
/// and each is to have its share of that.
const TURNS: usize = 3;
const TURN_SECONDS: f64 = 1.0;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", address, seconds] => {
            runtime.block_on(node::run(address, seconds.parse().expect("seconds")));
        }
        _ => runtime.block_on(measure(arguments)),
    }
}

async fn measure(mut arguments: Vec<String>) {
    let mut option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.drain(at..(at + 2).min(arguments.len())).nth(1)
    };
    let (json, only) = (option("--json"), option("--only"));
    let has = |part: &str| only.as_deref().is_none_or(|only| only.split(',').any(|it| it == part));
    let folder = arguments.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("ginnel-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write to");
    let server = Server::start(&folder);
    let mut rows = Vec::new();
    let mut note = |name: &str, unit: &str, samples: Vec<f64>| {
        println!("{name}: {:.2} {unit} {samples:.1?}", median(samples.clone()));
        let more_is_better = unit.ends_with("/s");
        rows.push(json!({"name": name, "unit": unit, "samples": samples, "more_is_better": more_is_better}));
    };
    if has("writes") {
        writes(&folder, &server, &mut note).await;
    }
    if has("nodes") {
        nodes(&server, &mut note);
    }
    if has("propagation") {
        for (name, notifies) in [("with NOTIFY", true), ("without", false)] {
            propagation(&server, name, notifies, &mut note).await;
        }
    }
    if has("reads") {
        reads(&server, &mut note).await;
    }
    if has("stopped") {
        stopped(&server, &mut note);
    }
    if let Some(file) = json {
        std::fs::write(file, Value::from(rows).to_string()).expect("a file to write to");
    }
    drop(server);
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

type Report<'a> = &'a mut dyn FnMut(&str, &str, Vec<f64>);

fn address(port: u16, database: &str) -> String {
    format!("postgres://ginnel@127.0.0.1:{port}/{database}")
}

/// A database with documents, and stores on it: directly, and over half a millisecond of round trip.
async fn seeded(server: &Server) -> (Arc<Store>, Arc<Store>) {
    let database = server.new_database();
    let direct = Arc::new(node::open(&address(server.port, &database)));
    node::seed(&direct).await;
    let network = Network { delay: Duration::from_micros(250), notifies: true };
    let port = proxy::start(server.port, network);
    (direct, Arc::new(node::open(&address(port, &database))))
}

async fn writes(folder: &Path, server: &Server, report: Report<'_>) {
    let file = Arc::new(Store::open(Some(&folder.join("sqlite.db"))).expect("a file"));
    node::seed(&file).await;
    let (direct, distant) = seeded(server).await;
    let (script, database) = pgbench_script(folder, server);
    let stores = [
        ("SQLite", &file, JobShape::Create),
        ("PostgreSQL", &direct, JobShape::Create),
        ("PostgreSQL, with a read", &direct, JobShape::ReadAndCreate),
        ("PostgreSQL, 0.5 ms away", &distant, JobShape::Create),
        ("PostgreSQL, 0.5 ms away, with a read", &distant, JobShape::ReadAndCreate),
    ];
    let mut samples = vec![Vec::new(); stores.len() + 1];
    for _ in 0..ROUNDS {
        let mut round = vec![0.0; samples.len()];
        for _ in 0..TURNS {
            round[0] += server.pgbench(&database, &script, TURN_SECONDS as u32);
            for ((_, store, shape), sum) in stores.iter().zip(&mut round[1..]) {
                *sum += node::write(store, *shape, TURN_SECONDS).await.rate(TURN_SECONDS);
            }
        }
        for (samples, sum) in samples.iter_mut().zip(round) {
            samples.push(sum / TURNS as f64);
        }
    }
    let names = ["pgbench, 64 clients"].into_iter().chain(stores.iter().map(|(name, ..)| *name));
    for (name, samples) in names.zip(samples) {
        report(name, "creates/s", samples);
    }
    [file, direct, distant].iter().for_each(|store| store.close());
}

/// A table of the shape of ours, and what inserts one row into it.
fn pgbench_script(folder: &Path, server: &Server) -> (PathBuf, String) {
    let database = server.new_database();
    server.sql(
        &database,
        "CREATE TABLE resources (kind text COLLATE \"C\" NOT NULL, id text COLLATE \"C\" NOT NULL, \
         body text COLLATE \"C\" NOT NULL, PRIMARY KEY (kind, id)); CREATE SEQUENCE ids CACHE 100",
    );
    let note = Note { id: "note_".to_owned() + &"0".repeat(27), text: node::text() };
    let body = serde_json::to_string(&note).expect("JSON");
    let script = folder.join("insert.sql");
    let id = "'note_' || lpad(nextval('ids')::text, 27, '0')";
    let sql = format!("INSERT INTO resources VALUES ('note', {id}, '{body}');\n");
    std::fs::write(&script, sql).expect("a file");
    (script, database)
}

/// One node in a process of its own, and three at once.
fn nodes(server: &Server, report: Report<'_>) {
    let address = address(server.port, &server.new_database());
    let (mut one, mut three, mut shares, mut p99) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let alone = together(&address, 1, SECONDS, |_| {});
        one.push(alone[0].rate(SECONDS));
        let all = together(&address, 3, SECONDS, |_| {});
        let rates: Vec<_> = all.iter().map(|node| node.rate(SECONDS)).collect();
        let sum: f64 = rates.iter().sum();
        three.push(sum);
        shares.extend(rates.iter().map(|rate| rate / sum * 100.0));
        p99.extend(all.iter().map(|node| node.percentile(0.99)));
    }
    report("one node in a process of its own", "creates/s", one);
    report("three nodes at once", "creates/s", three);
    report("share of each of three nodes", "%", shares);
    report("p99 of each of three nodes", "ms", p99);
}

fn together(
    address: &str,
    count: usize,
    seconds: f64,
    meanwhile: impl FnOnce(&[Node]),
) -> Vec<node::Acknowledgements> {
    let mut nodes: Vec<_> = (0..count).map(|_| Node::start(address, seconds)).collect();
    nodes.iter_mut().for_each(Node::go);
    meanwhile(&nodes);
    nodes.into_iter().map(Node::finish).collect()
}

/// How long after the response to a change another node hears of it.
async fn propagation(server: &Server, name: &str, notifies: bool, report: Report<'_>) {
    let database = server.new_database();
    let port = proxy::start(server.port, Network { delay: Duration::ZERO, notifies });
    let (writer, reader) =
        (node::open(&address(server.port, &database)), node::open(&address(port, &database)));
    let (heard, news) = std::sync::mpsc::channel();
    reader.watch_changes(move |_| heard.send(Instant::now()).expect("somebody listens"));
    let mut times = Vec::new();
    for number in 0..if notifies { 600 } else { 100 } {
        let note = Note { id: format!("note_{number}"), text: node::text() };
        writer.write(move |change| change.put_document(&note)).await.expect("a change");
        let answered = Instant::now();
        let heard = tokio::task::block_in_place(|| news.recv().expect("news"));
        times.push(heard.saturating_duration_since(answered).as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(number % 17)).await;
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[times.len() * share / 100];
    report(&format!("propagation {name}, p50"), "ms", vec![at(50)]);
    report(&format!("propagation {name}, p99"), "ms", vec![at(99)]);
    [writer, reader].iter().for_each(Store::close);
}

/// One resource and a page of them, through the API.
async fn reads(server: &Server, report: Report<'_>) {
    let database = server.new_database();
    let server = Some(address(server.port, &database).parse().expect("an address"));
    let store = StoreSettings { server, ..StoreSettings::default() };
    let options = Options { store, ..Options::default() };
    let service = Service::start(options).await.expect("a service");
    let host = service.url().trim_start_matches("http://").to_owned();
    let key = service.api_key().expect("a new database").0.clone();
    let call = |method: &str, path: &str, body: &str| request(method, path, &host, &key, body);
    let mut connection = Connection::new(&host).await;
    let create = call("POST", "/ip_policies", r#"{"description":"office","metadata":"{}"}"#);
    let mut made = Value::Null;
    for _ in 0..1000 {
        made = serde_json::from_slice(connection.call(&create).await).expect("JSON");
    }
    let one = call("GET", &format!("/ip_policies/{}", made["id"].as_str().expect("an id")), "");
    let page = call("GET", "/ip_policies?limit=100", "");
    for (name, read) in [("get", one), ("page of 100", page)] {
        let mut times = Vec::new();
        for _ in 0..2000 {
            let began = Instant::now();
            connection.call(&read).await;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        report(&format!("{name}, p50"), "ms", vec![median(times)]);
    }
    service.stop(Duration::from_secs(5)).await;
}

/// How long the others wait for a node that is stopped, at a moment of a batch or between two.
fn stopped(server: &Server, report: Report<'_>) {
    let address = address(server.port, &server.new_database());
    let mut gaps = Vec::new();
    for round in 0..6 {
        let all = together(&address, 3, 4.0, |nodes| {
            std::thread::sleep(Duration::from_millis(700 + round * 7));
            nodes[0].signal("-STOP");
            std::thread::sleep(Duration::from_millis(3000));
            nodes[0].signal("-CONT");
        });
        gaps.push(all[1..].iter().map(node::Acknowledgements::longest_gap).fold(0.0, f64::max));
    }
    report("longest stall of others while a node is stopped", "s", gaps);
}
