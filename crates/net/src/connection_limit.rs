//! How many connections are held at once, in total and of one address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::pending_sockets::{PendingSockets, SocketNumber};

/// How many bits of an IPv6 address tell one site from another: the rest is for the site to choose.
const SITE_BITS: u32 = 64;

/// Where a connection comes from, as limits count it: an IPv4 address, or a /64 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceAddress(IpAddr);

impl SourceAddress {
    pub fn from_ip(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let site = address.to_bits() & (u128::MAX << (128 - SITE_BITS));
                Ipv6Addr::from_bits(site).into()
            }
            address => address,
        })
    }
}

/// How many connections may be held at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCaps {
    /// In total.
    pub total: usize,
    /// Of one source.
    pub per_address: usize,
    /// How many of the total are for exempt addresses alone.
    pub reserved: usize,
}

/// How many connections were closed at once, since this was last asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusals {
    /// Whose connections the limit counts, such as `visitors`.
    pub of: &'static str,
    /// How many were closed.
    pub count: u64,
    /// Where the last of them came from.
    pub last: IpAddr,
    /// How many connections an address may hold.
    pub per_address: usize,
    /// How many connections there may be in total.
    pub total: usize,
}

/// What was counted of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Whose connections the limit counts, such as `visitors`.
    pub of: &'static str,
    /// How many are open.
    pub open: usize,
    /// How many were taken, ever.
    pub accepted: u64,
    /// How many were closed at once, ever.
    pub refused: u64,
}

/// How often the system gave no connection to a listener, since this was last asked for.
#[derive(Debug)]
pub struct AcceptFailures {
    /// Whose connections the limit counts, such as `visitors`.
    pub of: &'static str,
    /// How often it was tried in vain.
    pub count: u64,
    /// Why it failed the last time.
    pub last: io::Error,
}

/// Whether an address is exempt from the cap of one address, and may have what is reserved.
type IsExempt = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Counts the connections of one listener, or of several together.
pub struct ConnectionLimit {
    of: &'static str,
    is_exempt: IsExempt,
    /// If true, sockets whose peers have not authenticated make room for those of other addresses.
    has_fair_shares: bool,
    counts: Mutex<Counts>,
}

struct Counts {
    caps: ConnectionCaps,
    total: usize,
    by_source: HashMap<SourceAddress, usize>,
    all_accepted: u64,
    all_refused: u64,
    refused: u64,
    last_refused: Option<IpAddr>,
    failed: u64,
    last_failure: Option<io::Error>,
    pending: PendingSockets,
}

/// The right to hold one connection; dropping it gives it back.
pub struct Permit {
    limit: Arc<ConnectionLimit>,
    /// None where it counts in the total alone.
    source: Option<SourceAddress>,
    pending: Option<PendingSocket>,
}

/// A socket whose peer has not authenticated.
struct PendingSocket {
    number: SocketNumber,
    evicted: Arc<Notify>,
    /// True once the peer has authenticated.
    is_over: AtomicBool,
}

impl ConnectionLimit {
    /// A limit for the connections `of` these clients; addresses that are exempt are asked for only
    /// where a cap is reached.
    pub fn new(
        of: &'static str,
        caps: ConnectionCaps,
        is_exempt: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::build(of, caps, Box::new(is_exempt), false)
    }

    /// The same for clients that have to authenticate. At the limit, the address with the most clients that have
    /// not loses the newest of them.
    pub fn with_fair_shares(
        of: &'static str,
        caps: ConnectionCaps,
        is_exempt: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::build(of, caps, Box::new(is_exempt), true)
    }

    fn build(
        of: &'static str,
        caps: ConnectionCaps,
        is_exempt: IsExempt,
        has_fair_shares: bool,
    ) -> Arc<Self> {
        let counts = Counts {
            caps,
            total: 0,
            by_source: HashMap::new(),
            all_accepted: 0,
            all_refused: 0,
            refused: 0,
            last_refused: None,
            failed: 0,
            last_failure: None,
            pending: PendingSockets::default(),
        };
        Arc::new(Self { of, is_exempt, has_fair_shares, counts: Mutex::new(counts) })
    }

    /// Lets in as many as these caps say from now on; what is held stays.
    pub fn set_caps(&self, caps: ConnectionCaps) {
        self.lock_counts().caps = caps;
    }

    /// Counts a connection in, unless a cap is reached.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        self.admit_as(address, Some(SourceAddress::from_ip(address)))
    }

    /// Counts a connection in the total alone: where it comes from, it was counted by another node, and may be
    /// one of several of one connection there.
    pub fn admit_relayed(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        self.admit_as(address, None)
    }

    fn admit_as(
        self: &Arc<Self>,
        address: IpAddr,
        source: Option<SourceAddress>,
    ) -> Option<Permit> {
        let address = address.to_canonical();
        let mut counts = self.lock_counts();
        if !self.has_room(&counts, source)
            && !self.has_reserve(&counts, address)
            && !self.make_room(&mut counts, source)
        {
            counts.record_refusal(address);
            return None;
        }
        counts.total += 1;
        counts.all_accepted += 1;
        if let Some(source) = source {
            *counts.by_source.entry(source).or_default() += 1;
        }
        let pending = source.filter(|_| self.has_fair_shares).map(|source| {
            let (number, evicted) = counts.pending.add(source);
            PendingSocket { number, evicted, is_over: AtomicBool::new(false) }
        });
        Some(Permit { limit: self.clone(), source, pending })
    }

    /// Evicts the socket of another address, unless the newcomer's own address is at its cap.
    fn make_room(&self, counts: &mut Counts, source: Option<SourceAddress>) -> bool {
        let Some(source) = source.filter(|_| self.has_fair_shares) else { return false };
        if counts.by_source.get(&source).is_some_and(|held| *held >= counts.caps.per_address) {
            return false;
        }
        let Some(evicted) = counts.pending.evict_for(source) else { return false };
        counts.release(Some(evicted));
        counts.record_refusal(evicted.0);
        true
    }

    /// What was counted since there is this limit.
    pub fn total_counts(&self) -> ConnectionCounts {
        let Counts { total, all_accepted, all_refused, .. } = *self.lock_counts();
        ConnectionCounts { of: self.of, open: total, accepted: all_accepted, refused: all_refused }
    }

    /// The connections that were refused since this was last asked.
    pub fn take_refusals(&self) -> Option<Refusals> {
        let mut counts = self.lock_counts();
        let last = counts.last_refused.take()?;
        let count = std::mem::take(&mut counts.refused);
        let ConnectionCaps { per_address, total, .. } = counts.caps;
        Some(Refusals { of: self.of, count, last, per_address, total })
    }

    /// Notes why the system gave no connection.
    pub fn record_failure(&self, error: io::Error) {
        let mut counts = self.lock_counts();
        counts.failed += 1;
        counts.last_failure = Some(error);
    }

    /// How often the system gave no connection since this was last asked.
    pub fn take_failures(&self) -> Option<AcceptFailures> {
        let mut counts = self.lock_counts();
        let last = counts.last_failure.take()?;
        Some(AcceptFailures { of: self.of, count: std::mem::take(&mut counts.failed), last })
    }

    fn has_room(&self, counts: &Counts, source: Option<SourceAddress>) -> bool {
        let ConnectionCaps { total, per_address, reserved } = counts.caps;
        let held = source.and_then(|source| counts.by_source.get(&source));
        counts.total + reserved < total && held.is_none_or(|held| *held < per_address)
    }

    fn has_reserve(&self, counts: &Counts, address: IpAddr) -> bool {
        counts.total < counts.caps.total && (self.is_exempt)(address)
    }

    fn lock_counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn record_refusal(&mut self, address: IpAddr) {
        self.refused += 1;
        self.all_refused += 1;
        self.last_refused = Some(address);
    }

    /// Counts a connection out.
    fn release(&mut self, source: Option<SourceAddress>) {
        self.total -= 1;
        let Some(source) = source else { return };
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

impl Permit {
    /// Notes that the peer has authenticated: its connection makes no room for others any more.
    ///
    /// Returns false if it had to make room before.
    pub fn mark_authenticated(&self) -> bool {
        let Some((pending, source)) = self.pending.as_ref().zip(self.source) else { return true };
        let is_counted = self.limit.lock_counts().pending.remove(source, pending.number);
        pending.is_over.store(is_counted, Ordering::Release);
        is_counted
    }

    /// Waits until the connection has to make room for that of another address.
    pub async fn wait_until_evicted(&self) {
        match &self.pending {
            Some(pending) => pending.evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limit.lock_counts();
        let is_counted = match (&self.pending, self.source) {
            (Some(pending), Some(source)) if !pending.is_over.load(Ordering::Acquire) => {
                counts.pending.remove(source, pending.number)
            }
            _ => true,
        };
        // A connection that was evicted has been counted out already.
        if is_counted {
            counts.release(self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(total: usize, per_address: usize, reserved: usize) -> Arc<ConnectionLimit> {
        let caps = ConnectionCaps { total, per_address, reserved };
        ConnectionLimit::new("visitors", caps, |address| address == ip("10.0.0.1"))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_another_node_has_taken_counts_in_the_total_alone() {
        let limit = limit(3, 1, 0);
        let address = ip("192.0.2.1");
        let _own = limit.admit(address).unwrap();

        let relayed = [limit.admit_relayed(address), limit.admit_relayed(address)];

        assert!(relayed.iter().all(Option::is_some));
        assert!(limit.admit_relayed(address).is_none() && limit.admit(ip("192.0.2.2")).is_none());
        drop(relayed);
        assert!(limit.admit(address).is_none(), "its own one is still there");
        assert_eq!(limit.total_counts().open, 1);
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let limit = limit(5, 3, 0);
        let held: Vec<_> = (0..9).filter_map(|_| limit.admit(ip("192.0.2.1"))).collect();

        assert_eq!(held.len(), 3);
        let other = limit.admit(ip("192.0.2.2")).unwrap();
        drop(held);
        assert!(limit.admit(ip("192.0.2.1")).is_some());
        drop(other);
        assert!(limit.lock_counts().by_source.is_empty(), "who has gone leaves nothing behind");
        assert_eq!(limit.lock_counts().total, 0);
    }

    #[test]
    fn the_total_is_for_all_and_its_last_part_for_those_who_are_exempt() {
        let limit = limit(5, 3, 2);
        let held: Vec<_> =
            (1..9).filter_map(|n| limit.admit(ip(&format!("192.0.2.{n}")))).collect();
        let exempt: Vec<_> = (0..9).filter_map(|_| limit.admit(ip("10.0.0.1"))).collect();

        assert_eq!((held.len(), exempt.len()), (3, 2));
        let actual = limit.take_refusals().unwrap();
        assert_eq!((actual.count, actual.last), (12, ip("10.0.0.1")));
        let ConnectionCounts { open, accepted, refused, .. } = limit.total_counts();
        assert_eq!((open, accepted, refused), (5, 5, 12));
        assert_eq!(limit.take_refusals(), None);
    }

    #[test]
    fn exempt_addresses_hold_as_many_as_there_are() {
        let limit = limit(5, 1, 0);
        let held: Vec<_> = (0..9).filter_map(|_| limit.admit(ip("::ffff:10.0.0.1"))).collect();

        assert_eq!(held.len(), 5);
    }

    fn fair(total: usize, per_address: usize, reserved: usize) -> Arc<ConnectionLimit> {
        let caps = ConnectionCaps { total, per_address, reserved };
        let is_exempt = |address| address == ip("10.0.0.1");
        ConnectionLimit::with_fair_shares("agents", caps, is_exempt)
    }

    /// True if the connection had to make room.
    fn is_evicted(permit: &Permit) -> bool {
        use std::task::{Context, Waker};
        let mut waiting = std::pin::pin!(permit.wait_until_evicted());
        waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn idle_sockets_of_one_address_make_room_for_others_newest_first() {
        let limit = fair(8, 6, 2);
        let mut idle: Vec<_> = (0..9).filter_map(|_| limit.admit(ip("192.0.2.1"))).collect();
        assert_eq!(idle.len(), 6, "there is no room for more of them");

        let others: Vec<_> =
            (2..5).map(|n| limit.admit(ip(&format!("192.0.2.{n}"))).unwrap()).collect();

        let evicted: Vec<_> = idle.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, false, false, true, true, true]);
        assert_eq!(limit.total_counts().open, 6, "who has to go is counted out at once");
        idle.truncate(3);
        assert_eq!(limit.total_counts().open, 6);
        drop((idle, others));
        assert_eq!(limit.total_counts().open, 0);
        assert_eq!(limit.take_refusals().unwrap().count, 3 + 3);
    }

    #[test]
    fn the_address_of_the_most_idle_sockets_makes_no_room_for_itself() {
        let limit = fair(4, 4, 0);
        let idle: Vec<_> = (0..3).filter_map(|_| limit.admit(ip("192.0.2.1"))).collect();
        let other = limit.admit(ip("192.0.2.2")).unwrap();

        assert!(limit.admit(ip("192.0.2.1")).is_none());
        assert!(!idle.iter().any(is_evicted) && !is_evicted(&other));
    }

    #[test]
    fn who_has_authenticated_stays() {
        let limit = fair(3, 3, 0);
        let known: Vec<_> = (0..2).filter_map(|_| limit.admit(ip("192.0.2.1"))).collect();
        assert!(known.iter().all(Permit::mark_authenticated));
        let idle = limit.admit(ip("192.0.2.2")).unwrap();

        let next = limit.admit(ip("192.0.2.3")).unwrap();

        assert!(is_evicted(&idle) && !known.iter().any(is_evicted));
        assert!(!idle.mark_authenticated(), "too late");
        assert!(next.mark_authenticated());
        assert!(limit.admit(ip("192.0.2.4")).is_none(), "all have authenticated");
        drop((known, idle, next));
        assert_eq!(limit.total_counts().open, 0);
    }

    #[test]
    fn an_exempt_address_does_not_keep_others_out() {
        let limit = fair(4, 2, 1);
        let idle: Vec<_> = (0..9).filter_map(|_| limit.admit(ip("10.0.0.1"))).collect();
        assert_eq!(idle.len(), 4);

        let other = limit.admit(ip("192.0.2.1"));

        assert!(other.is_some() && is_evicted(&idle[3]) && !is_evicted(&idle[2]));
    }

    #[test]
    fn of_many_addresses_with_one_socket_the_one_goes_that_waits_longest() {
        let limit = fair(3, 3, 0);
        let idle: Vec<_> =
            (1..4).filter_map(|n| limit.admit(ip(&format!("192.0.2.{n}")))).collect();

        let next = limit.admit(ip("192.0.2.9"));

        assert!(next.is_some());
        assert_eq!(idle.iter().map(is_evicted).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn new_caps_hold_from_the_next_connection_on() {
        let limit = limit(2, 2, 0);
        let held = [limit.admit(ip("192.0.2.1")), limit.admit(ip("192.0.2.2"))];
        assert!(held.iter().all(Option::is_some));

        limit.set_caps(ConnectionCaps { total: 1, per_address: 1, reserved: 0 });

        assert!(limit.admit(ip("192.0.2.3")).is_none());
        drop(held);
        let next = limit.admit(ip("192.0.2.3"));
        assert!(next.is_some() && limit.admit(ip("192.0.2.4")).is_none());
    }

    #[test]
    fn a_site_of_ipv6_counts_as_one_and_ipv4_however_it_is_written() {
        let same = |one: &str, other: &str| {
            SourceAddress::from_ip(ip(one)) == SourceAddress::from_ip(ip(other))
        };

        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(!same("::1", "127.0.0.1"));
    }
}
