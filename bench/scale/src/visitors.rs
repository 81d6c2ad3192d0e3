//! Connections of visitors that are idle, or slow: what one costs, and whether the others notice.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::http::{Connection, get};
use crate::load::{self, Requests};
use crate::process;
use crate::report::{Goal, Part};
use crate::subject::Subject;

const KIB: f64 = 1024.0;
const HOST: &str = "visitors.example";
/// What others ask for, per second and connection.
const RATE: f64 = 1000.0;
const CONNECTIONS: usize = 16;
/// How often a slow visitor sends a byte.
const SLOW_INTERVAL: Duration = Duration::from_secs(3);
/// How many connections are opened at a time.
const OPENING: usize = 64;

pub async fn measure(part: &mut Part, folder: &Path, size: usize, is_short: bool) {
    let most = process::most_connections();
    let length = Duration::from_secs(if is_short { 2 } else { 8 });
    // A slow one needs a connection to the backend as well.
    for (kind, count) in [("idle", size.min(most)), ("slow", size.min(most / 2))] {
        let subject = subject(folder).await;
        let address = subject.http_address();
        let alone = others(&address, length).await;
        let before = subject.memory();
        let crowd = Crowd::open(&address, kind == "slow", count).await;
        sleep(2 * SLOW_INTERVAL).await;
        let each = (subject.memory() - before) / KIB / count as f64;
        part.add(&format!("memory of a connection, {kind}"), "KiB", Goal::AtMost(12.0), size, each);
        let crowded = others(&address, length).await;
        let failed = alone.failed + crowded.failed;
        part.add(
            &format!("p99 of others without, {kind}"),
            "ms",
            Goal::None,
            size,
            alone.percentile(99),
        );
        part.add(
            &format!("p99 of others beside, {kind}"),
            "ms",
            Goal::None,
            size,
            crowded.percentile(99),
        );
        let ratio = crowded.percentile(99) / alone.percentile(99);
        part.add(&format!("p99 beside / without, {kind}"), "", Goal::AtMost(1.5), size, ratio);
        part.add(
            &format!("others that failed, {kind}"),
            "requests",
            Goal::AtMost(0.0),
            size,
            failed as f64,
        );
        part.add(&format!("connections, {kind}"), "", Goal::None, size, count as f64);
        let lost = crowd.close().await;
        part.add(
            &format!("connections that were closed, {kind}"),
            "",
            Goal::AtMost(0.0),
            size,
            lost as f64,
        );
        subject.remove().await;
    }
}

/// A service with one edge and a backend.
async fn subject(folder: &Path) -> Subject {
    let connections = process::most_connections() + 4 * CONNECTIONS;
    let connections = connections.to_string();
    let flags = ["--max-connections", &connections, "--max-connections-per-address", &connections];
    let subject = Subject::new(folder, "visitors", &flags.map(str::to_owned)).await;
    let client = subject.client();
    let backend = client.backend(&load::backend(64, false).await).await;
    let mut connection = client.connect().await;
    let edge = json!({"hostports": [format!("{HOST}:80")]});
    let edge = client.create(&mut connection, "/edges/https", &edge).await;
    let route =
        json!({"match_type": "path_prefix", "match": "/", "backend": {"backend_id": backend}});
    client.create(&mut connection, &format!("/edges/https/{edge}/routes"), &route).await;
    subject
}

/// Visitors at a steady rate that two cores can serve with ease.
async fn others(address: &str, length: Duration) -> load::Outcome {
    let requests: Requests = Arc::new(|_| get(HOST, "/"));
    load::steadily(address, CONNECTIONS, RATE, requests, sleep(length)).await
}

/// Many connections on which little happens.
struct Crowd {
    members: JoinSet<bool>,
    leave: watch::Sender<bool>,
}

impl Crowd {
    async fn open(address: &str, is_slow: bool, count: usize) -> Self {
        let (leave, leaving) = watch::channel(false);
        let turns = Arc::new(tokio::sync::Semaphore::new(OPENING));
        let mut members = JoinSet::new();
        let (ready, mut all_ready) = watch::channel(0);
        for number in 0..count {
            let (address, leaving, turns) = (address.to_owned(), leaving.clone(), turns.clone());
            let ready = ready.clone();
            members.spawn(async move {
                let turn = turns.acquire().await.expect("turns go on");
                let mut connection = Connection::new(&address).await.expect("a connection");
                if !is_slow {
                    connection.call(&get(HOST, "/")).await.expect("a response");
                    connection.rest();
                } else {
                    let head =
                        format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 1000\r\n\r\n");
                    connection.send(head.as_bytes()).await.expect("the service reads");
                }
                drop(turn);
                ready.send_modify(|count| *count += 1);
                linger(connection, is_slow, number, count, leaving).await
            });
        }
        all_ready.wait_for(|ready| *ready == count).await.expect("all connect");
        Self { members, leave }
    }

    /// Closes all connections; returns how many the service had closed before.
    async fn close(self) -> usize {
        self.leave.send_replace(true);
        self.members.join_all().await.into_iter().filter(|lost| *lost).count()
    }
}

/// Keeps a connection until all leave; true when the service has closed it.
async fn linger(
    mut connection: Connection,
    is_slow: bool,
    number: usize,
    count: usize,
    mut leaving: watch::Receiver<bool>,
) -> bool {
    if is_slow {
        // The bytes of all are spread over the interval.
        let mut pause = SLOW_INTERVAL.mul_f64(number as f64 / count as f64);
        while tokio::time::timeout(pause, leaving.wait_for(|leave| *leave)).await.is_err() {
            if connection.send(b"x").await.is_err() {
                return true;
            }
            pause = SLOW_INTERVAL;
        }
    } else {
        leaving.wait_for(|leave| *leave).await.expect("somebody leads");
    }
    connection.is_closed()
}
