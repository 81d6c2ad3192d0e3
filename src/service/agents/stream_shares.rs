//! How the streams of one session are shared among those who visit its tunnels.
//!
//! An agent carries only so many streams. Whoever comes first may have all of them; when none is left,
//! an address that has few takes one from the address that has most.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::gateway::TrustedProxies;
use crate::mux::{Code, Stream, StreamWatch, UnreadAccount, UnreadBacklog};
use crate::net::SourceAddress;

/// How many streams an address may have at the cost of others.
const SMALL_SHARE: usize = 16;
/// A stream on which nothing was read or sent for so long stands still.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);
/// How often the streams of a session are looked through at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How many entries there are at least before those of the past are dropped.
const MIN_ENTRIES: usize = 32;

/// How the streams of one session are shared.
pub(crate) struct StreamShares {
    trusted_proxies: TrustedProxies,
    backlog: Arc<UnreadBacklog>,
    shares: Mutex<Shares>,
}

#[derive(Default)]
struct Shares {
    by_source: HashMap<SourceAddress, Share>,
    /// How many sources there are when those without streams are dropped.
    sweep_at: usize,
    looked: Option<Instant>,
}

/// The streams of one source.
struct Share {
    account: Arc<UnreadAccount>,
    streams: Vec<StalledStream>,
    /// How many streams there are when those that are gone are dropped.
    sweep_at: usize,
}

/// A stream, and since when it stands still.
struct StalledStream {
    stream: StreamWatch,
    moves: u64,
    since: Instant,
}

impl StreamShares {
    pub fn new(trusted_proxies: TrustedProxies) -> Self {
        Self { trusted_proxies, backlog: Arc::default(), shares: Mutex::default() }
    }

    /// Notes a new stream of a visitor.
    pub fn hold(&self, address: IpAddr, stream: &Stream) {
        let source = SourceAddress::of(address);
        let mut shares = self.lock();
        shares.sweep();
        let share = shares.by_source.entry(source).or_insert_with(|| Share::new(&self.backlog));
        share.sweep();
        // Many visitors stand behind a proxy.
        if !self.trusted_proxies.contains(address) {
            stream.count_in(share.account.clone());
        }
        share.streams.push(StalledStream {
            stream: stream.watch(),
            moves: 0,
            since: Instant::now(),
        });
    }

    /// Ends a stream of the source that has most, if this one has few; true when there is room for
    /// another then. Streams that stand still are taken, and with `any` all others as well.
    pub fn make_room(&self, address: IpAddr, any: bool) -> bool {
        let source = SourceAddress::of(address);
        let mut shares = self.lock();
        let own = shares.by_source.get_mut(&source).map_or(0, Share::live);
        let now = Instant::now();
        let looked = shares.looked.is_some_and(|looked| now - looked < LOOK_INTERVAL);
        if own >= SMALL_SHARE || looked {
            return false;
        }
        shares.looked = Some(now);
        let counted = shares.by_source.values_mut().map(|share| (share.live(), share));
        let Some((most, share)) = counted.max_by_key(|(live, _)| *live) else { return false };
        let limit = if any { Duration::ZERO } else { STALL_TIMEOUT };
        // One less must not be fewer than one more.
        most >= own + 2 && share.end_stillest(now, limit)
    }

    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shares {
    fn sweep(&mut self) {
        if self.by_source.len() >= self.sweep_at {
            self.by_source.retain(|_, share| share.live() > 0);
            self.sweep_at = (2 * self.by_source.len()).max(MIN_ENTRIES);
        }
    }
}

impl Share {
    fn new(backlog: &Arc<UnreadBacklog>) -> Self {
        Self { account: UnreadAccount::new(backlog), streams: Vec::new(), sweep_at: MIN_ENTRIES }
    }

    /// How many streams there are.
    fn live(&mut self) -> usize {
        self.streams.retain(|entry| entry.stream.moves().is_some());
        self.streams.len()
    }

    fn sweep(&mut self) {
        if self.streams.len() >= self.sweep_at {
            self.sweep_at = (2 * self.live()).max(MIN_ENTRIES);
        }
    }

    /// Ends the stream that has stood still for longest, if that is at least `limit`.
    fn end_stillest(&mut self, now: Instant, limit: Duration) -> bool {
        self.streams.iter_mut().for_each(|entry| entry.look(now));
        let still = self.streams.iter().enumerate().min_by_key(|(_, entry)| entry.since);
        let Some((at, entry)) = still.filter(|(_, entry)| now - entry.since >= limit) else {
            return false;
        };
        entry.stream.reset(Code::CANCELLED);
        self.streams.swap_remove(at);
        true
    }
}

impl StalledStream {
    fn look(&mut self, now: Instant) {
        if let Some(moves) = self.stream.moves().filter(|moves| *moves != self.moves) {
            (self.moves, self.since) = (moves, now);
        }
    }
}
