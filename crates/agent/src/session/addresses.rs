//! Where the service is tried next.
//!
//! Its addresses are tried in turn, and what a name resolves to as well, beginning with another each time
//! around: one that swallows everything does not keep the agent from the others. An address that led to
//! the node of the other session rests for a while.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use ginnel_base::address::HostPort;
use ginnel_base::random_fraction;
use ginnel_net::proxy::Proxy;
use ginnel_net::resolve_host;

use crate::service_proxies::{ServicePlace, ServiceProxies};

/// The shortest and the longest rest of an address that leads to the node of the other session.
const MIN_REST: Duration = Duration::from_secs(1);
const MAX_REST: Duration = Duration::from_secs(60);
/// How long it rests where there is no other node: one may come.
const ONLY_NODE_REST: Duration = Duration::from_secs(600);

/// The addresses of the service, as one session tries them.
#[derive(Debug)]
pub(super) struct AddressBook {
    names: Vec<HostPort>,
    /// Which name is tried next.
    next: usize,
    /// How often all of them were tried.
    rounds: usize,
    resting: Vec<RestingAddress>,
}

/// What to connect to.
pub(super) enum NextAddress {
    /// One of these, which the name resolves to; the first one that accepts.
    Try { name: HostPort, addresses: Vec<SocketAddr> },
    /// The name, through a proxy.
    TryThrough { name: HostPort, proxy: Proxy },
    /// Nothing before this time.
    Rest(Instant),
}

#[derive(Debug)]
struct RestingAddress {
    place: ServicePlace,
    times: u32,
    until: Instant,
}

impl AddressBook {
    /// The addresses, of which the one at `first` is tried first, counted around.
    pub fn new(names: &[HostPort], first: usize) -> Self {
        let next = first.checked_rem(names.len()).unwrap_or(0);
        Self { names: names.to_vec(), next, rounds: 0, resting: Vec::new() }
    }

    /// What to connect to now; `occupied` is where the other session is, and tried last. To resolve a
    /// name may take as long as `limit`.
    ///
    /// # Errors
    /// With the name that cannot be resolved, and why.
    pub async fn next(
        &mut self,
        proxies: &ServiceProxies,
        occupied: Option<&ServicePlace>,
        now: Instant,
        limit: Duration,
    ) -> Result<NextAddress, (HostPort, io::Error)> {
        for _ in 0..self.names.len() {
            let round = self.rounds;
            let Some(name) = self.next_name() else { break };
            match proxies.find(&name) {
                Err(error) => return Err((name, io::Error::other(error))),
                Ok(Some(_)) if self.is_resting(&ServicePlace::Proxied(name.clone()), now) => {
                    continue;
                }
                Ok(Some(proxy)) => return Ok(NextAddress::TryThrough { name, proxy }),
                Ok(None) => {}
            }
            let resolved = match timeout(limit, resolve_host(&name)).await {
                Ok(Ok(resolved)) => resolved,
                Ok(Err(error)) => return Err((name, error)),
                Err(_) => return Err((name, io::ErrorKind::TimedOut.into())),
            };
            let is_known = !resolved.is_empty();
            let addresses = self.in_order(round, resolved, occupied, now);
            // A name without addresses is for connecting to complain of.
            if !addresses.is_empty() || !is_known {
                return Ok(NextAddress::Try { name, addresses });
            }
        }
        // Those whose rest is over would be tried if a name still led there.
        self.resting.retain(|resting| resting.until > now);
        let earliest = self.resting.iter().map(|resting| resting.until).min();
        Ok(NextAddress::Rest(earliest.unwrap_or(now + MIN_REST)))
    }

    /// Notes that the last name was the right one: it is tried first next time.
    pub fn record_success(&mut self) {
        self.resting.clear();
        self.rounds = 0;
        self.next = self.next.checked_sub(1).unwrap_or(self.names.len().saturating_sub(1));
    }

    /// Notes that an address leads to the node of the other session, which may be the only node.
    pub fn rest_address(&mut self, place: ServicePlace, now: Instant, is_only: bool) {
        let found = self.resting.iter_mut().find(|it| it.place.is_same(&place));
        let times = found.as_ref().map_or(0, |resting| resting.times + 1);
        let longest = if is_only { ONLY_NODE_REST } else { rest_duration(times) };
        let until = now + jitter_duration(longest);
        match found {
            Some(resting) => (resting.times, resting.until) = (times, until),
            None => self.resting.push(RestingAddress { place, times, until }),
        }
    }

    /// Notes that the other session has changed: nothing has to rest any more.
    pub fn wake_addresses(&mut self) {
        self.resting.clear();
    }

    fn next_name(&mut self) -> Option<HostPort> {
        let name = self.names.get(self.next).cloned();
        self.next += 1;
        if self.next >= self.names.len() {
            (self.next, self.rounds) = (0, self.rounds.wrapping_add(1));
        }
        name
    }

    /// The addresses of a name that do not rest, in the order of this round.
    fn in_order(
        &self,
        round: usize,
        mut resolved: Vec<SocketAddr>,
        occupied: Option<&ServicePlace>,
        now: Instant,
    ) -> Vec<SocketAddr> {
        let begin = round.checked_rem(resolved.len()).unwrap_or(0);
        resolved.rotate_left(begin);
        resolved.retain(|address| !self.is_resting(&(*address).into(), now));
        let is_occupied = |place: &ServicePlace| occupied.is_some_and(|it| it.is_same(place));
        resolved.sort_by_key(|address| is_occupied(&(*address).into()));
        resolved
    }

    fn is_resting(&self, place: &ServicePlace, now: Instant) -> bool {
        self.resting.iter().any(|resting| resting.until > now && resting.place.is_same(place))
    }
}

/// How long an address rests at most that has rested so many times before.
fn rest_duration(times: u32) -> Duration {
    MIN_REST.saturating_mul(1 << times.min(16)).min(MAX_REST)
}

/// A part of a time, so that many agents do not come at once.
fn jitter_duration(longest: Duration) -> Duration {
    longest.mul_f64(0.5 + 0.5 * random_fraction()).max(MIN_REST)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ginnel_api::Secret;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn book(names: &[&str], first: usize) -> AddressBook {
        AddressBook::new(&names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>(), first)
    }

    async fn tried(book: &mut AddressBook, occupied: Option<SocketAddr>, now: Instant) -> String {
        let occupied = occupied.map(ServicePlace::from);
        let proxies = ServiceProxies::default();
        match book.next(&proxies, occupied.as_ref(), now, MIN_REST).await.unwrap() {
            NextAddress::Try { name, .. } => name.to_string(),
            NextAddress::TryThrough { name, .. } => format!("proxy {name}"),
            NextAddress::Rest(until) => format!("{:?}", until.duration_since(now)),
        }
    }

    #[tokio::test]
    async fn names_are_tried_in_turn_and_the_right_one_again() {
        let (now, mut book) = (Instant::now(), book(&["127.0.0.1:1", "127.0.0.1:2"], 1));

        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:2");
        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:1");
        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:2");
        book.record_success();
        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:2");
    }

    #[tokio::test]
    async fn an_address_that_leads_to_the_same_node_rests_longer_each_time() {
        let (now, mut book) = (Instant::now(), book(&["127.0.0.1:1", "127.0.0.1:2"], 0));
        let first = address("127.0.0.1:1");

        let mut rests = Vec::new();
        for _ in 0..9 {
            book.rest_address(first.into(), now, false);
            rests.push(book.resting[0].until.duration_since(now));
        }
        assert!(rests.iter().all(|rest| (MIN_REST..=MAX_REST).contains(rest)), "{rests:?}");
        assert!(rests[8] >= MAX_REST / 2, "{rests:?}");

        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:2");
        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:2", "the other one rests");
        book.rest_address(address("127.0.0.1:2").into(), now, false);
        let until = book.resting[1].until;
        assert_eq!(tried(&mut book, None, now).await, format!("{:?}", until.duration_since(now)));
        assert_eq!(tried(&mut book, None, until).await, "127.0.0.1:2");
        book.wake_addresses();
        assert_eq!(tried(&mut book, None, now).await, "127.0.0.1:1");
        book.rest_address(first.into(), now, true);
        assert!(book.resting[0].until >= now + ONLY_NODE_REST / 2, "nobody else is there");
    }

    #[tokio::test]
    async fn an_address_that_no_name_leads_to_any_more_is_not_waited_for() {
        let (now, mut book) = (Instant::now(), book(&["127.0.0.1:1"], 0));
        book.rest_address(address("127.0.0.9:1").into(), now, false);
        let later = now + MAX_REST;
        book.rest_address(address("127.0.0.1:1").into(), later, false);
        let until = book.resting[1].until;

        assert_eq!(
            tried(&mut book, None, later).await,
            format!("{:?}", until.duration_since(later))
        );
        assert!(until > later && book.resting.len() == 1);
    }

    #[tokio::test]
    async fn a_name_behind_a_proxy_is_not_resolved_and_rests_as_addresses_do() {
        let proxies = ServiceProxies::from_option(Some(&Secret("proxy.test:1".into()))).unwrap();
        let (now, mut book) = (Instant::now(), book(&["a.invalid:1", "b.invalid:2"], 0));

        let mut tried = Vec::new();
        for _ in 0..3 {
            match book.next(&proxies, None, now, MIN_REST).await.unwrap() {
                NextAddress::TryThrough { name, .. } => tried.push(name.to_string()),
                NextAddress::Try { .. } | NextAddress::Rest(_) => tried.push("other".to_owned()),
            }
            let place = ServicePlace::Proxied("a.invalid:1".parse().unwrap());
            book.rest_address(place, now, false);
        }

        assert_eq!(tried, ["a.invalid:1", "b.invalid:2", "b.invalid:2"]);
    }

    #[test]
    fn what_a_name_resolves_to_begins_with_another_each_time_around() {
        let mut book = book(&["a.test:1"], 0);
        let resolved = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(address);
        let last_bytes = |book: &AddressBook, occupied: Option<SocketAddr>| {
            let occupied = occupied.map(ServicePlace::from);
            let ordered =
                book.in_order(book.rounds, resolved.to_vec(), occupied.as_ref(), Instant::now());
            ordered.iter().map(|it| it.to_string()[7..8].to_owned()).collect::<String>()
        };

        assert_eq!(last_bytes(&book, None), "123");
        assert_eq!(last_bytes(&book, Some(resolved[0])), "231", "where the other session is, last");
        book.next_name();
        assert_eq!(last_bytes(&book, None), "231");
        book.rest_address(resolved[1].into(), Instant::now(), false);
        assert_eq!(last_bytes(&book, None), "31");
    }
}
