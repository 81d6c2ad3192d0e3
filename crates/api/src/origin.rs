//! Where times and random bytes come from: the system, or a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Timestamp;

/// Where times and random bytes come from.
///
/// By default that is the system. A seeded origin gives the same in each run: random bytes from the
/// seed, and a clock that stands still until it is set forward. What it makes can be guessed, so it
/// is for tests. Clones share their clock and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    seeded: Option<Seeded>,
    /// The last reading of another clock that is followed instead of the machine's.
    followed: Arc<RwLock<Option<(SystemTime, Instant)>>>,
}

#[derive(Debug, Clone)]
struct Seeded {
    seed: u64,
    /// Nanoseconds since the Unix epoch.
    clock: Arc<AtomicU64>,
    state: Arc<AtomicU64>,
}

impl Origin {
    /// An origin whose bytes come from `seed`, and whose clock stands at `begin`.
    pub fn from_seed(seed: u64, begin: SystemTime) -> Self {
        let clock = Arc::new(AtomicU64::new(saturating_nanos(
            begin.duration_since(UNIX_EPOCH).unwrap_or_default(),
        )));
        let seeded = Seeded { seed, clock, state: Arc::new(AtomicU64::new(seed)) };
        Self { seeded: Some(seeded), ..Self::default() }
    }

    /// The same clock with bytes of its own, so that what uses it depends on no other part.
    #[must_use]
    pub fn derive_part(&self, number: u64) -> Self {
        let seeded = self.seeded.as_ref().map(|seeded| {
            let state = Arc::new(AtomicU64::new(mix_bits(seeded.seed ^ mix_bits(number))));
            Seeded { state, ..seeded.clone() }
        });
        Self { seeded, followed: self.followed.clone() }
    }

    /// What time it is.
    pub fn now(&self) -> SystemTime {
        if let Some(seeded) = &self.seeded {
            return UNIX_EPOCH + Duration::from_nanos(seeded.clock.load(Ordering::Acquire));
        }
        self.wall_time()
    }

    /// Returns the time by the machine's clock, or by the clock that is followed, even if this one is seeded.
    pub fn wall_time(&self) -> SystemTime {
        let followed = *self.followed.read().unwrap_or_else(PoisonError::into_inner);
        followed.map_or_else(SystemTime::now, |(time, read_at)| time + read_at.elapsed())
    }

    /// Follows another clock, which shows `time` at this moment, instead of the machine's: nodes that share a database
    /// follow its clock. A seeded clock follows none.
    pub fn follow_clock(&self, time: SystemTime) {
        let mut followed = self.followed.write().unwrap_or_else(PoisonError::into_inner);
        *followed = Some((time, Instant::now()));
    }

    /// What time it is, as the APIs write it.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_system_time(self.now())
    }

    /// Sets a seeded clock forward; false where the clock is the system's.
    pub fn advance_clock(&self, by: Duration) -> bool {
        let Some(seeded) = &self.seeded else { return false };
        let by = saturating_nanos(by);
        let later = |now: u64| Some(now.saturating_add(by));
        // The closure always gives a time, so this cannot fail.
        seeded.clock.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).is_ok()
    }

    /// Whether it gives the same in each run.
    pub fn is_seeded(&self) -> bool {
        self.seeded.is_some()
    }

    /// Fills the buffer with random bytes.
    ///
    /// # Errors
    /// When the operating system gives none.
    pub fn fill_random(&self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        let Some(seeded) = &self.seeded else { return getrandom::fill(bytes) };
        for chunk in bytes.chunks_mut(8) {
            let number = mix_bits(seeded.state.fetch_add(SPLITMIX_STEP, Ordering::AcqRel));
            chunk.copy_from_slice(number.to_le_bytes().get(..chunk.len()).unwrap_or_default());
        }
        Ok(())
    }
}

/// The step of the generator SplitMix64: odd, and without a pattern.
const SPLITMIX_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixing of SplitMix64: every bit of the result depends on every bit of the number.
fn mix_bits(number: u64) -> u64 {
    let mut number = number.wrapping_add(SPLITMIX_STEP);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(origin: &Origin) -> [u8; 21] {
        let mut bytes = [0; 21];
        assert!(origin.fill_random(&mut bytes).is_ok());
        bytes
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        let begin = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        let (one, same) = (Origin::from_seed(7, begin), Origin::from_seed(7, begin));

        assert_eq!(bytes(&one), bytes(&same));
        assert_eq!(bytes(&one), bytes(&same));
        assert_eq!(bytes(&one.derive_part(1)), bytes(&same.derive_part(1)));
        assert_ne!(bytes(&one.derive_part(1)), bytes(&one.derive_part(2)));
        assert_ne!(bytes(&one), bytes(&Origin::from_seed(8, begin)));
        assert_eq!(one.timestamp().0, "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_clock_is_shared_by_all_parts_and_stands_until_it_is_set_forward() {
        let origin = Origin::from_seed(7, UNIX_EPOCH);
        let part = origin.derive_part(1);

        assert!(origin.advance_clock(Duration::from_millis(90_061_500)));
        assert_eq!(part.timestamp().0, "1970-01-02T01:01:01Z");
        assert!(part.advance_clock(Duration::MAX));
        assert!(origin.now() > UNIX_EPOCH + Duration::from_secs(1 << 33));
    }

    #[test]
    fn another_clock_is_followed_by_all_parts() {
        let origin = Origin::default();
        let part = origin.derive_part(1);
        let time = UNIX_EPOCH + Duration::from_secs(2_000_000_000);

        origin.follow_clock(time);

        let elapsed = part.now().duration_since(time).unwrap_or_default();
        assert!(part.now() >= time && elapsed < Duration::from_secs(30), "{elapsed:?}");
    }

    #[test]
    fn the_clock_of_the_system_cannot_be_set() {
        let origin = Origin::default();

        assert!(!origin.derive_part(1).advance_clock(Duration::from_secs(60)));
        assert!(SystemTime::now().duration_since(origin.now()).unwrap_or_default().as_secs() < 30);
        assert_ne!(bytes(&origin), bytes(&origin));
    }
}
