//! How long to wait before the service is tried again.

use std::time::{Duration, Instant};

use ginnel_base::random_fraction;

/// The longest pause before the first attempt; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// An outage that has lasted longer than this is a long one.
const SHORT_OUTAGE: Duration = Duration::from_secs(5);
/// The longest pause in a short outage.
const MAX_SHORT_OUTAGE_PAUSE: Duration = Duration::from_secs(1);
/// How long connecting may take in a short outage: an attempt that began while nobody was there
/// must not hold up the one that succeeds.
const SHORT_OUTAGE_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest pause of all.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(15);
/// A session that lived for less leaves the pauses as long as they were.
const STABLE_SESSION: Duration = Duration::from_secs(5);

/// The pauses between attempts to reach the service in one outage.
#[derive(Debug)]
pub(super) struct Backoff {
    /// Since when the service is away.
    since: Instant,
    attempts: u32,
    /// There was a session before.
    is_reconnect: bool,
}

impl Backoff {
    /// The pauses before the first session.
    pub fn new(now: Instant) -> Self {
        Self { since: now, attempts: 0, is_reconnect: false }
    }

    /// Notes that a session which lived so long was lost.
    pub fn session_lost(&mut self, lived: Duration, now: Instant) {
        self.since = now;
        self.is_reconnect = true;
        if lived >= STABLE_SESSION {
            self.attempts = 0;
        }
    }

    /// How long to wait before the next attempt: a random time up to the longest pause, so that
    /// many agents do not come back at once.
    pub fn next_pause(&mut self, now: Instant) -> Duration {
        let longest = longest_pause(self.attempts, now.duration_since(self.since));
        self.attempts = self.attempts.saturating_add(1);
        longest.mul_f64(random_fraction())
    }

    /// How long connecting may take now, where `usual` is what the options say.
    pub fn connect_timeout(&self, usual: Duration, now: Instant) -> Duration {
        let is_short = self.is_reconnect && now.duration_since(self.since) < SHORT_OUTAGE;
        if is_short { usual.min(SHORT_OUTAGE_CONNECT_TIMEOUT) } else { usual }
    }
}

/// The longest pause after so many attempts in an outage that has lasted so long.
fn longest_pause(attempts: u32, outage: Duration) -> Duration {
    let is_short = outage < SHORT_OUTAGE;
    let cap = if is_short { MAX_SHORT_OUTAGE_PAUSE } else { MAX_PAUSE };
    FIRST_PAUSE.saturating_mul(1 << attempts.min(16)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_second_and_later_to_a_quarter_of_a_minute() {
        let short: Vec<_> = (0..6)
            .map(|attempt| longest_pause(attempt, Duration::from_secs(4)).as_millis())
            .collect();
        assert_eq!(short, [100, 200, 400, 800, 1000, 1000]);

        let long: Vec<_> = (3..9)
            .map(|attempt| longest_pause(attempt, Duration::from_secs(6)).as_millis())
            .collect();
        assert_eq!(long, [800, 1600, 3200, 6400, 12_800, 15_000]);
        assert_eq!(longest_pause(u32::MAX, Duration::MAX), MAX_PAUSE);
    }

    #[test]
    fn an_agent_is_back_two_seconds_after_an_outage_of_three() {
        let start = Instant::now();
        for _ in 0..500 {
            let mut backoff = Backoff::new(start);
            backoff.session_lost(STABLE_SESSION, start);
            let mut now = start;
            let outage = Duration::from_secs(3);
            // Each attempt meets a black hole and takes as long as it may.
            while now < start + outage {
                now += backoff.next_pause(now);
                if now < start + outage {
                    now += backoff.connect_timeout(Duration::from_secs(10), now);
                }
            }
            let last = now + backoff.next_pause(now);
            assert!(last <= start + outage + Duration::from_secs(2), "{:?}", last - start);
        }
    }

    #[test]
    fn pauses_are_spread_from_nothing_to_the_longest() {
        let start = Instant::now();
        let pauses: Vec<_> = (0..200).map(|_| Backoff::new(start).next_pause(start)).collect();

        assert!(pauses.iter().all(|pause| *pause <= FIRST_PAUSE));
        assert!(pauses.iter().any(|pause| *pause < FIRST_PAUSE / 4));
        assert!(pauses.iter().any(|pause| *pause > FIRST_PAUSE * 3 / 4));
    }

    #[test]
    fn sessions_that_are_lost_at_once_do_not_make_the_pauses_short_again() {
        let start = Instant::now();
        let mut backoff = Backoff::new(start);
        for _ in 0..4 {
            backoff.next_pause(start);
        }

        backoff.session_lost(Duration::from_millis(10), start);
        assert_eq!(backoff.attempts, 4);
        backoff.session_lost(STABLE_SESSION, start);
        assert_eq!(backoff.attempts, 0);
    }

    #[test]
    fn only_short_outages_shorten_the_time_to_connect() {
        let (start, usual) = (Instant::now(), Duration::from_secs(10));
        let mut backoff = Backoff::new(start);
        assert_eq!(backoff.connect_timeout(usual, start), usual);

        backoff.session_lost(STABLE_SESSION, start);
        assert_eq!(backoff.connect_timeout(usual, start), SHORT_OUTAGE_CONNECT_TIMEOUT);
        assert_eq!(backoff.connect_timeout(usual, start + SHORT_OUTAGE), usual);
    }
}
