//! Visitors: as fast as they can, or at a steady rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};

use crate::http::Connection;

/// Whoever waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the n-th request.
pub type Requests = Arc<dyn Fn(usize) -> Vec<u8> + Send + Sync>;

/// What became of the requests.
#[derive(Default)]
pub struct Outcome {
    /// In milliseconds, for those that got their response.
    pub latencies: Vec<f64>,
    pub failed: usize,
    pub elapsed: Duration,
}

impl Outcome {
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(self.latencies.clone(), percent)
    }

    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.failed += other.failed;
    }
}

/// The value that so many percent do not exceed.
pub fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values
        .get((values.len() * percent / 100).min(values.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Sends requests on so many connections, each one after the other, for a while.
pub async fn as_fast_as_possible(
    address: &str,
    connections: usize,
    length: Duration,
    requests: Requests,
) -> Outcome {
    let began = Instant::now();
    let workers = (0..connections).map(|worker| {
        let (address, requests) = (address.to_owned(), requests.clone());
        async move {
            let mut visitor = Visitor::new(address);
            let mut count = worker;
            while began.elapsed() < length {
                visitor.ask(&requests(count), Instant::now()).await;
                count += connections;
            }
            visitor.outcome
        }
    });
    gather(workers, began).await
}

/// Sends requests at a steady rate, whatever becomes of those before, until `stop` completes.
/// Latencies count from when a request was due.
pub async fn steadily(
    address: &str,
    connections: usize,
    rate: f64,
    requests: Requests,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Outcome {
    let began = Instant::now();
    let (stopping, stopped) = tokio::sync::watch::channel(false);
    let stopper = tokio::spawn(async move {
        stop.await;
        stopping.send_replace(true);
    });
    let period = Duration::from_secs_f64(connections as f64 / rate);
    let workers = (0..connections).map(|worker| {
        let (address, requests, stopped) = (address.to_owned(), requests.clone(), stopped.clone());
        async move {
            let mut visitor = Visitor::new(address);
            let first =
                tokio::time::Instant::now() + period.mul_f64(worker as f64 / connections as f64);
            let mut ticks = tokio::time::interval_at(first, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut count = worker;
            while !*stopped.borrow() {
                let due = ticks.tick().await;
                visitor.ask(&requests(count), due.into_std()).await;
                count += connections;
            }
            visitor.outcome
        }
    });
    let outcome = gather(workers, began).await;
    stopper.await.expect("an end");
    outcome
}

async fn gather(
    workers: impl Iterator<Item = impl Future<Output = Outcome> + Send + 'static>,
    began: Instant,
) -> Outcome {
    let mut running: JoinSet<_> = JoinSet::new();
    workers.for_each(|worker| drop(running.spawn(worker)));
    let mut all = Outcome::default();
    while let Some(outcome) = running.join_next().await {
        all.add(outcome.expect("a worker"));
    }
    all.elapsed = began.elapsed();
    all
}

/// Asks one request after the other, on one connection as long as that lasts.
struct Visitor {
    address: String,
    connection: Option<Connection>,
    outcome: Outcome,
}

impl Visitor {
    fn new(address: String) -> Self {
        Self { address, connection: None, outcome: Outcome::default() }
    }

    async fn ask(&mut self, request: &[u8], due: Instant) {
        match timeout(PATIENCE, self.attempt(request)).await {
            Ok(Ok(200)) => self.outcome.latencies.push(due.elapsed().as_secs_f64() * 1e3),
            _ => {
                self.outcome.failed += 1;
                self.connection = None;
            }
        }
    }

    async fn attempt(&mut self, request: &[u8]) -> std::io::Result<u16> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::new(&self.address).await?),
        };
        Ok(connection.call(request).await?.0)
    }
}

/// A web service with one response, which reads whatever it gets; returns its address.
pub async fn backend(body: usize, closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let close = if closes { "connection: close\r\n" } else { "" };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {body}\r\n{close}\r\n");
    let response: Arc<[u8]> = [head.as_bytes(), &vec![b'x'; body]].concat().into();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(read) = stream.read(&mut buffer).await
                    && read > 0
                {
                    // The last bytes of a head, or of a body that comes byte by byte and does not matter.
                    let is_head = buffer[..read].ends_with(b"\r\n\r\n");
                    let is_get = buffer.starts_with(b"GET");
                    if is_head && is_get && (stream.write_all(&response).await.is_err() || closes) {
                        return;
                    }
                }
            });
        }
    });
    address
}
