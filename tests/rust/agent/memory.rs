//! What captured requests take: never more bytes than the limit, and not much more memory.
//!
//! Memory belongs to the process, so each run has one of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use ginnel_agent::capture::{
    Body, CaptureLimit, CaptureSource, CaptureStore, NewCapture, Recording,
};

use super::alone;

/// The threads that capture, and how many exchanges each has under way.
const THREADS: usize = 2;
const UNDER_WAY: usize = 16;
/// How much a relay reads at a time.
const PIECE: usize = 64 << 10;
const LONGEST: f64 = 5e6;
const MIB: usize = 1 << 20;

const LIMIT: &str = "GINNEL_TEST_LIMIT";
const REQUESTS: &str = "GINNEL_TEST_REQUESTS";

#[test]
fn captured_requests_stay_within_their_limit() {
    for limit in [MIB, 50 * MIB] {
        let told = run(limit, 10_000);
        println!("{told}");
    }
}

#[test]
#[ignore = "takes minutes: a million requests for each limit"]
fn a_million_captured_requests() {
    for limit in [MIB, 50 * MIB] {
        println!("{}", run(limit, 1_000_000));
    }
}

/// Captures in another process, and says what it said.
fn run(limit: usize, requests: usize) -> String {
    let mut command = alone::command("agent::memory::captures_in_a_process_of_its_own");
    command.env(LIMIT, limit.to_string()).env(REQUESTS, requests.to_string());
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    let told = said.lines().find(|line| line.contains("counted"));
    told.expect("figures").to_owned()
}

#[test]
#[ignore = "is run by the tests above"]
fn captures_in_a_process_of_its_own() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (Some(limit), Some(requests)) = (number(LIMIT), number(REQUESTS)) else { return };
    let captures = CaptureStore::new(CaptureLimit::Bytes(limit));
    // What a slow listener has not heard of yet takes nothing either.
    let _listener = captures.subscribe();

    let threads = (0..THREADS).map(|seed| {
        let captures = captures.clone();
        thread::spawn(move || capture(&captures, requests / THREADS, seed as u64 + 1))
    });
    let threads: Vec<_> = threads.collect();
    let most = threads.into_iter().map(|thread| thread.join().unwrap());
    let most = most.reduce(|one, other| one.max(other)).unwrap();

    let usage = captures.usage();
    assert_eq!(usage.records as u64 + usage.evicted, requests as u64);
    println!(
        "limit {} MiB: {requests} requests, {:.1} MiB counted at most, {:.1} MiB resident at most",
        limit / MIB,
        most.counted as f64 / MIB as f64,
        most.resident as f64 / MIB as f64
    );
    assert!(most.counted <= limit);
    assert!(most.resident <= limit * 3 / 2 + 60 * MIB);
}

/// The most that was seen.
#[derive(Clone, Copy, Default)]
struct Most {
    counted: usize,
    resident: usize,
}

impl Most {
    fn max(self, other: Self) -> Self {
        Self {
            counted: self.counted.max(other.counted),
            resident: self.resident.max(other.resident),
        }
    }
}

fn capture(captures: &Arc<CaptureStore>, requests: usize, seed: u64) -> Most {
    let (mut most, mut chance) = (Most::default(), Chance(seed));
    let mut under_way = VecDeque::new();
    let piece = vec![b'x'; PIECE];
    for number in 0..requests {
        under_way.push_back(exchange(captures, &piece, &mut chance));
        if under_way.len() > UNDER_WAY {
            // Its end, long after others were captured.
            under_way.pop_front();
        }
        let resident = if number % 100 == 0 { resident() } else { 0 };
        most = most.max(Most { counted: captures.usage().bytes, resident });
    }
    most
}

/// One exchange, all but its end.
fn exchange(captures: &Arc<CaptureStore>, piece: &[u8], chance: &mut Chance) -> Recording {
    let head =
        format!("POST /{} HTTP/1.1\r\nHost: shop.test\r\nAccept: */*\r\n\r\n", chance.next());
    let recording = captures.start_recording(NewCapture {
        tunnel_name: "web",
        source: CaptureSource { remote_addr: "192.0.2.1".to_owned(), ..CaptureSource::default() }
            .into(),
        head: head.as_bytes(),
        body: &Body::NONE,
    });
    pieces(chance.size(), piece, |bytes| recording.request_body(bytes));
    recording.response_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", &Body::NONE);
    pieces(chance.size(), piece, |bytes| recording.response_body(bytes));
    recording
}

fn pieces(size: usize, piece: &[u8], mut take: impl FnMut(&[u8])) {
    let mut left = size;
    while left > 0 {
        let count = left.min(piece.len());
        take(&piece[..count]);
        left -= count;
    }
}

/// Numbers that look like chance and are the same in each run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// The size of a body, none to 5 MB: as many below 2 kB as above.
    fn size(&mut self) -> usize {
        let fraction = self.next() as f64 / f64::from(1_u32 << 31);
        (LONGEST.powf(fraction) - 1.0).round() as usize
    }
}

/// The memory of this process; elsewhere than on Linux nobody says.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = |at| text.split(' ').nth(at).and_then(|pages| pages.parse::<usize>().ok());
    // Pages of the program itself come and go, and are nobody's captures.
    pages(1).zip(pages(2)).map_or(0, |(all, of_files)| all - of_files) * 4096
}
