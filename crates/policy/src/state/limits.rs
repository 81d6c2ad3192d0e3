//! How many requests there were lately: windows that slide in tenths.
//!
//! `ginnel_base::SlidingWindow` keeps each moment. These windows keep ten counts instead, because visitors choose how many
//! buckets there are: 100,000 of them take 12 MB, whatever their capacity is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::digest::SHA256;

/// How many buckets there are at most.
const BUCKETS: usize = 100_000;

/// Into how many parts a window is divided.
const SLOTS: u64 = 10;

/// How many buckets are compared when one must go.
const COMPARED: usize = 16;

/// The counters of rate limits, by bucket.
#[derive(Debug, Default)]
pub struct RateLimits(Mutex<Windows>);

#[derive(Debug, Default)]
struct Windows {
    /// When time began.
    epoch: Option<Instant>,
    /// When idle buckets were last looked for.
    swept: Option<Instant>,
    /// By the digest of what they are called, which is shorter.
    buckets: HashMap<[u8; 32], Window>,
}

/// One window that slides over the requests of a bucket.
#[derive(Debug, Clone)]
struct Window {
    rate: Duration,
    /// The number of the newest slot since time began.
    newest: u64,
    counts: [u32; SLOTS as usize],
}

impl RateLimits {
    /// Counts a request, or says how long it would have to wait.
    pub fn admit(
        &self,
        bucket: &str,
        capacity: u64,
        rate: Duration,
        now: Instant,
    ) -> Result<(), Duration> {
        let bucket = bucket_digest(bucket);
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(*windows.epoch.get_or_insert(now));
        match windows.buckets.get_mut(&bucket) {
            Some(window) if window.rate == rate => window.admit(capacity, since),
            _ => {
                windows.make_room(now, since);
                let mut window = Window::new(rate);
                let admitted = window.admit(capacity, since);
                windows.buckets.insert(bucket, window);
                admitted
            }
        }
    }

    /// How many buckets there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).buckets.len()
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn bucket_digest(bucket: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(ring::digest::digest(&SHA256, bucket.as_bytes()).as_ref());
    bytes
}

impl Windows {
    /// Lets go of idle buckets, or of one that has counted little.
    fn make_room(&mut self, now: Instant, since: Duration) {
        if self.buckets.len() < BUCKETS {
            return;
        }
        // Looking through all of them at each request would be a gift to attackers.
        if self.swept.is_none_or(|swept| now.duration_since(swept) >= Duration::from_secs(1)) {
            self.swept = Some(now);
            self.buckets.retain(|_, window| window.is_live(since));
        }
        if self.buckets.len() >= BUCKETS {
            let some = self.buckets.iter().take(COMPARED);
            let least = some.min_by_key(|(_, window)| window.total_count()).map(|(name, _)| *name);
            least.map(|name| self.buckets.remove(&name));
        }
    }
}

impl Window {
    fn new(rate: Duration) -> Self {
        Self { rate, newest: 0, counts: [0; SLOTS as usize] }
    }

    fn admit(&mut self, capacity: u64, since: Duration) -> Result<(), Duration> {
        self.slide_to(since);
        if self.total_count() >= capacity {
            return Err(self.wait_time(capacity, since));
        }
        let slot = (self.newest % SLOTS) as usize;
        self.counts[slot] = self.counts[slot].saturating_add(1);
        Ok(())
    }

    /// The width of a slot in nanoseconds.
    fn slot_width(&self) -> u128 {
        self.rate.as_nanos() / u128::from(SLOTS)
    }

    fn slot_at(&self, since: Duration) -> u64 {
        u64::try_from(since.as_nanos() / self.slot_width()).unwrap_or(u64::MAX)
    }

    /// Forgets what has left the window.
    fn slide_to(&mut self, since: Duration) {
        let newest = self.slot_at(since);
        for slot in self.newest.saturating_add(1)..=newest.min(self.newest.saturating_add(SLOTS)) {
            self.counts[(slot % SLOTS) as usize] = 0;
        }
        self.newest = newest.max(self.newest);
    }

    fn total_count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// How long it takes until so many have left the window that there is room.
    fn wait_time(&self, capacity: u64, since: Duration) -> Duration {
        let mut left = self.total_count();
        let mut slots = 0;
        while left >= capacity && slots < SLOTS {
            slots += 1;
            left -= u64::from(self.counts[((self.newest + slots) % SLOTS) as usize]);
        }
        let until = u128::from(self.newest + slots) * self.slot_width();
        let nanos = until.saturating_sub(since.as_nanos());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn is_live(&self, since: Duration) -> bool {
        self.slot_at(since).saturating_sub(self.newest) < SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_window_slides() {
        let (limits, start) = (RateLimits::default(), Instant::now());
        let admit = |seconds: u64| {
            limits
                .admit("a", 3, MINUTE, start + Duration::from_secs(seconds))
                .map_err(|it| it.as_secs())
        };

        assert_eq!(admit(0), Ok(()));
        assert_eq!(admit(30), Ok(()));
        assert_eq!(admit(31), Ok(()));
        assert_eq!(admit(32), Err(28), "until the first one leaves");
        assert_eq!(admit(59), Err(1));
        assert_eq!(admit(60), Ok(()));
        assert_eq!(admit(60), Err(30));
        assert_eq!(admit(600), Ok(()));
    }

    #[test]
    fn buckets_count_apart_and_a_new_rate_starts_anew() {
        let (limits, now) = (RateLimits::default(), Instant::now());

        assert!(limits.admit("a", 1, MINUTE, now).is_ok());
        assert!(limits.admit("a", 1, MINUTE, now).is_err());
        assert!(limits.admit("b", 1, MINUTE, now).is_ok());
        assert!(limits.admit("a", 1, 2 * MINUTE, now).is_ok());
    }

    #[test]
    fn there_is_an_end_to_buckets() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        assert!(limits.admit("busy", 1000, MINUTE, now).is_ok());
        for number in 0..BUCKETS + 10 {
            assert!(limits.admit(&number.to_string(), 1, MINUTE, now).is_ok());
        }
        assert_eq!(limits.len(), BUCKETS);

        assert!(limits.admit("later", 1, MINUTE, now + 2 * MINUTE).is_ok());
        assert_eq!(limits.len(), 1, "the idle ones are gone");
    }
}
