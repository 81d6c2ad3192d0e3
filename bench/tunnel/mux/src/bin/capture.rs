//! How much memory captured requests take, beside what is counted.
//!
//!     capture [--requests 1000000]
//!
//! For each limit a process of its own records requests, 32 under way at any time, with bodies from
//! nothing to 5 MB in both directions.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use ginnel::agent::capture::{Captures, Limit, Opening, Recording, Source};

/// The settings of `inspect_db_size` that are tried, in bytes.
const LIMITS: [usize; 2] = [1_000_000, 50_000_000];
/// How many requests are under way at once.
const TOGETHER: usize = 32;
/// How much of a body arrives at once.
const PIECE: usize = 64 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<usize>().ok()
    };
    let requests = after("--requests").unwrap_or(1_000_000);
    if let Some(limit) = after("--limit") {
        return record(limit, requests);
    }
    for limit in LIMITS {
        let program = std::env::current_exe().expect("a program");
        let status = Command::new(program)
            .args(["--requests", &requests.to_string(), "--limit", &limit.to_string()])
            .status();
        assert!(status.is_ok_and(|status| status.success()), "limit {limit}");
    }
}

fn record(limit: usize, requests: usize) {
    let captures = Captures::new(Limit::Bytes(limit));
    let bytes = vec![b'x'; PIECE];
    let (mut under_way, mut most, started) = (VecDeque::new(), 0, Instant::now());
    for number in 0..requests {
        let recording = open(&captures, number);
        let size = size(number);
        pieces(size, &bytes, |piece| recording.request_body(piece));
        recording.response_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", true);
        pieces(size, &bytes, |piece| {
            recording.response_body(piece);
            most = most.max(captures.usage().bytes);
        });
        under_way.push_back(recording);
        if under_way.len() > TOGETHER {
            under_way.pop_front();
        }
        most = most.max(captures.usage().bytes);
    }
    let usage = captures.usage();
    let resident = resident();
    let allowed = limit as f64 * 1.5 / 1048576.0 + 60.0;
    println!(
        "limit {limit}: {requests} requests in {:.1} s, at most {most} bytes counted, {} records kept, \
         {} let go, at most {resident:.1} MiB resident ({allowed:.1} allowed)",
        started.elapsed().as_secs_f64(),
        usage.records,
        usage.evicted,
    );
    assert!(most <= limit && resident <= allowed);
}

fn open(captures: &Arc<Captures>, number: usize) -> Recording {
    let head = format!("POST /webhook/{number} HTTP/1.1\r\nHost: shop.test\r\nUser-Agent: bench\r\n\r\n");
    captures.open(Opening {
        tunnel_name: "web",
        source: Source { remote_addr: "203.0.113.7".to_owned(), ..Source::default() },
        head: head.as_bytes(),
        chunked: true,
    })
}

/// How long the bodies of a request are: mostly short, sometimes 64 KiB, now and then up to 5 MB.
fn size(number: usize) -> usize {
    match number {
        _ if number % 1000 == 0 => 5_000_000 - (number / 1000 % 50) * 100_000,
        _ if number % 100 == 0 => 64 * 1024,
        _ => number.wrapping_mul(2_654_435_761) % 4096,
    }
}

fn pieces(mut size: usize, bytes: &[u8], mut take: impl FnMut(&[u8])) {
    while size > 0 {
        let piece = size.min(bytes.len());
        take(&bytes[..piece]);
        size -= piece;
    }
}

/// The most memory that this process has had, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(f64::NAN);
    kilobytes / 1024.0
}
