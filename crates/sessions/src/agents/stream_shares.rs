//! How the streams of one session are shared among those who visit its tunnels.
//!
//! An agent carries only so many streams. Whoever comes first may have all of them; when none is left,
//! an address that has few gets the next that ends, and at once one that idles: a connection on which
//! nothing moves, or a request whose visitor does not read what has arrived. A request that waits for
//! the local service is never ended: its response is pending.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ginnel_gateway::TrustedProxies;
use ginnel_mux::{Code, Stream, StreamWatch, UnreadAccount, UnreadBacklog};
use ginnel_net::SourceAddress;

/// With fewer streams than this, an address goes before those that have more.
const SMALL_SHARE: usize = 16;
/// A stream on which nothing was read or sent for so long idles.
const STALL_TIMEOUT: Duration = Duration::from_millis(500);
/// How often the streams of a session are looked through at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How many entries there are at least before those of the past are dropped.
const MIN_ENTRIES: usize = 32;

/// How the streams of one session are shared.
pub struct StreamShares {
    trusted_proxies: TrustedProxies,
    backlog: Arc<UnreadBacklog>,
    shares: Mutex<Shares>,
    /// How many visitors wait whose addresses have few streams.
    waiting: AtomicUsize,
}

/// A visitor who waits for a stream.
pub struct WaitingTurn<'s> {
    shares: &'s StreamShares,
    goes_first: bool,
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

/// A stream, and since when it idles.
struct StalledStream {
    stream: StreamWatch,
    /// Whether it carries requests, whose responses may be pending.
    is_http: bool,
    moves: u64,
    since: Instant,
}

impl StreamShares {
    /// Without streams; about `unread` bytes may wait unread on all of them.
    pub fn new(trusted_proxies: TrustedProxies, unread: usize) -> Self {
        Self {
            trusted_proxies,
            backlog: Arc::new(UnreadBacklog::new(unread)),
            shares: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Notes a new stream of a visitor.
    pub fn add_stream(&self, address: IpAddr, stream: &Stream, is_http: bool) {
        let source = SourceAddress::from_ip(address);
        let mut shares = self.lock_shares();
        shares.sweep_sources();
        let share = shares.by_source.entry(source).or_insert_with(|| Share::new(&self.backlog));
        share.sweep_streams();
        // Many visitors stand behind a proxy.
        if !self.trusted_proxies.contains(address) {
            stream.count_in(share.account.clone());
        }
        share.streams.push(StalledStream {
            stream: stream.watch(),
            is_http,
            moves: 0,
            since: Instant::now(),
        });
    }

    /// Notes a visitor of this address who waits for a stream.
    pub fn register_waiting(&self, address: IpAddr) -> WaitingTurn<'_> {
        let goes_first = self.lock_shares().live_streams(address) < SMALL_SHARE;
        self.waiting.fetch_add(usize::from(goes_first), Relaxed);
        WaitingTurn { shares: self, goes_first }
    }

    /// Whether others, who have fewer streams, go before this address.
    pub fn is_preceded(&self, address: IpAddr) -> bool {
        self.waiting.load(Relaxed) > 0
            && !self.trusted_proxies.contains(address)
            && self.lock_shares().live_streams(address) >= SMALL_SHARE
    }

    /// Ends the stream that has been idle for longest, of a source that has more than this one,
    /// if this one has few; true when there is room for another then.
    pub fn make_room(&self, address: IpAddr) -> bool {
        let mut shares = self.lock_shares();
        let own = shares.live_streams(address);
        let now = Instant::now();
        let looked = shares.looked.is_some_and(|looked| now - looked < LOOK_INTERVAL);
        if own >= SMALL_SHARE || looked {
            return false;
        }
        shares.looked = Some(now);
        // One less must not be fewer than one more.
        let larger = shares
            .by_source
            .values_mut()
            .filter_map(|share| (share.live_streams() >= own + 2).then_some(&mut share.streams));
        let stalled = larger.flatten().filter_map(|entry| entry.stalled_for(now));
        let Some((_, stream)) = stalled.max_by_key(|(time, _)| *time) else { return false };
        stream.reset(Code::CANCELLED);
        true
    }

    /// Whether no visitor has a stream.
    pub fn is_idle(&self) -> bool {
        self.lock_shares().by_source.values_mut().all(|share| share.live_streams() == 0)
    }

    fn lock_shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingTurn<'_> {
    fn drop(&mut self) {
        self.shares.waiting.fetch_sub(usize::from(self.goes_first), Relaxed);
    }
}

impl Shares {
    /// How many streams an address has.
    fn live_streams(&mut self, address: IpAddr) -> usize {
        self.by_source.get_mut(&SourceAddress::from_ip(address)).map_or(0, Share::live_streams)
    }

    fn sweep_sources(&mut self) {
        if self.by_source.len() >= self.sweep_at {
            self.by_source.retain(|_, share| share.live_streams() > 0);
            self.sweep_at = (2 * self.by_source.len()).max(MIN_ENTRIES);
        }
    }
}

impl Share {
    fn new(backlog: &Arc<UnreadBacklog>) -> Self {
        Self { account: UnreadAccount::new(backlog), streams: Vec::new(), sweep_at: MIN_ENTRIES }
    }

    /// How many streams there are.
    fn live_streams(&mut self) -> usize {
        self.streams.retain(|entry| entry.stream.move_count().is_some());
        self.streams.len()
    }

    fn sweep_streams(&mut self) {
        if self.streams.len() >= self.sweep_at {
            self.sweep_at = (2 * self.live_streams()).max(MIN_ENTRIES);
        }
    }
}

impl StalledStream {
    /// The stream with the time for which it has been idle, once that is long.
    fn stalled_for(&mut self, now: Instant) -> Option<(Duration, &StreamWatch)> {
        let moves = self.stream.move_count()?;
        let is_pending = self.is_http && self.stream.unread_bytes() == 0;
        if moves != self.moves || is_pending {
            (self.moves, self.since) = (moves, now);
        }
        let time = now - self.since;
        (time >= STALL_TIMEOUT).then_some((time, &self.stream))
    }
}
