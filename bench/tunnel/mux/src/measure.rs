//! The tests, and the table of what they found.

use std::fmt;
use std::io::{Error, Result};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::client::{bulk_plain, bulk_stream, session, small, small_plain};
use crate::peer::SMALL;
use crate::tls::Dialler;

pub const TESTS: [&str; 5] = ["bulk", "bulk32", "open", "rate", "idle"];

const MIB: u64 = 1024 * 1024;
const BULK: u64 = 512 * MIB;
const SEQUENTIAL: usize = 20_000;
const AT_ONCE: usize = 32;
const RATE_FOR: Duration = Duration::from_secs(1);
const IDLE: usize = 10_000;

/// One line of the table: a value for each round.
pub struct Row {
    name: String,
    values: Vec<f64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let (least, median, most) = (sorted[0], sorted[last / 2], sorted[last]);
        write!(f, "{:44} {median:>11.1}   ({least:.1} to {most:.1})", self.name)
    }
}

fn note(rows: &mut Vec<Row>, name: &str, value: f64) {
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => row.values.push(value),
        None => rows.push(Row { name: name.to_owned(), values: vec![value] }),
    }
}

pub async fn run(test: &str, port: u16, peer: u32, rows: &mut Vec<Row>) -> Result<()> {
    let dialler = Dialler::new(port)?;
    match test {
        "bulk" => bulk(&dialler, rows).await,
        "bulk32" => bulk_at_once(&dialler, rows).await,
        "open" => open(&dialler, peer, rows).await,
        "rate" => rate(&dialler, peer, rows).await,
        "idle" => idle(&dialler, peer, rows).await,
        _ => Err(Error::other(format!("no test {test}"))),
    }
}

async fn bulk(dialler: &Dialler, rows: &mut Vec<Row>) -> Result<()> {
    for piece in [64 * 1024, 8 * 1024] {
        let kib = piece / 1024;
        let started = Instant::now();
        bulk_plain(dialler, BULK, piece).await?;
        let plain = per_second(BULK / MIB, started);
        let session = session(dialler).await?;
        let started = Instant::now();
        bulk_stream(&session, BULK, piece).await?;
        let muxed = per_second(BULK / MIB, started);
        note(rows, &format!("bulk, {kib} KiB writes: plain TLS, MiB/s"), plain);
        note(rows, &format!("bulk, {kib} KiB writes: one stream, MiB/s"), muxed);
        note(rows, &format!("bulk, {kib} KiB writes: stream / plain, %"), 100.0 * muxed / plain);
    }
    Ok(())
}

async fn bulk_at_once(dialler: &Dialler, rows: &mut Vec<Row>) -> Result<()> {
    let session = session(dialler).await?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(
                async move { bulk_stream(&session, BULK / AT_ONCE as u64, 64 * 1024).await },
            )
        })
        .collect();
    for task in tasks {
        task.await.map_err(Error::other)??;
    }
    note(rows, "bulk over 32 streams, MiB/s", per_second(BULK / MIB, started));
    Ok(())
}

async fn open(dialler: &Dialler, peer: u32, rows: &mut Vec<Row>) -> Result<()> {
    let session = session(dialler).await?;
    let mut times = Vec::with_capacity(SEQUENTIAL);
    let before = processor_time(peer)?;
    for _ in 0..SEQUENTIAL {
        let started = Instant::now();
        small(&session).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let used = processor_time(peer)? - before;
    times.sort_by(f64::total_cmp);
    note(rows, "open + 128 B / 256 B: p50, us", times[SEQUENTIAL / 2]);
    note(rows, "open + 128 B / 256 B: p99, us", times[SEQUENTIAL * 99 / 100]);
    note(rows, "open + 128 B / 256 B: CPU of both, us", used * 1e6 / SEQUENTIAL as f64);
    let started = Instant::now();
    for _ in 0..50 {
        small_plain(dialler).await?;
    }
    let plain = started.elapsed().as_secs_f64() * 1e6 / 50.0;
    note(rows, "a TLS connection for each instead: mean, us", plain);
    Ok(())
}

async fn rate(dialler: &Dialler, peer: u32, rows: &mut Vec<Row>) -> Result<()> {
    let session = session(dialler).await?;
    let before = processor_time(peer)?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move {
                let mut done = 0_u64;
                while started.elapsed() < RATE_FOR {
                    small(&session).await?;
                    done += 1;
                }
                Ok::<_, Error>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.map_err(Error::other)??;
    }
    note(rows, "32 at once: streams/s", per_second(done, started));
    let used = processor_time(peer)? - before;
    note(rows, "32 at once: CPU of both, us a stream", used * 1e6 / done as f64);
    Ok(())
}

async fn idle(dialler: &Dialler, peer: u32, rows: &mut Vec<Row>) -> Result<()> {
    let session = session(dialler).await?;
    let (ours, theirs) = (resident(std::process::id())?, resident(peer)?);
    let mut streams = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        streams.push(session.open_stream(Bytes::from_static(&[SMALL])).await?);
        // The peer must keep up, or it would refuse some.
        tokio::task::yield_now().await;
    }
    small(&session).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / IDLE as f64;
    note(rows, "idle stream: bytes, opener", each(ours, resident(std::process::id())?));
    note(rows, "idle stream: bytes, peer with a task", each(theirs, resident(peer)?));
    Ok(())
}

fn per_second(done: u64, started: Instant) -> f64 {
    done as f64 / started.elapsed().as_secs_f64()
}

/// Bytes of memory in use by a process.
fn resident(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm"))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.map(|pages| pages * 4096).ok_or_else(|| Error::other("no statm"))
}

/// Seconds of processor time that this process and the peer have used.
fn processor_time(peer: u32) -> Result<f64> {
    let mut ticks = 0.0;
    for process in [std::process::id(), peer] {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        let behind = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = behind.split_whitespace().collect();
        for at in [11, 12] {
            ticks += fields.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
        }
    }
    Ok(ticks / 100.0)
}
