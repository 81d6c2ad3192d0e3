//! The clock that decides how old stored data is.
//!
//! On PostgreSQL it is the database's clock, which all nodes share; on SQLite it is this machine's. A clock that has
//! leapt must not delete anything: after a leap, deletion and expiry pause for a day of running time.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ginnel_api::Origin;

use super::age_reading::StoredReading;

/// The largest difference between the wall clock and the monotonic clock that is not a leap.
const MAX_DRIFT: Duration = Duration::from_secs(3600);
/// The largest difference between the stored time and the time at the start that is not a leap.
const MAX_ABSENCE: Duration = Duration::from_secs(24 * 3600);
/// The running time after a leap in which nothing is deleted for its age.
const PAUSE: Duration = Duration::from_secs(24 * 3600);
/// The running time after which a reading is stored again.
const STORE_INTERVAL: Duration = Duration::from_secs(600);

/// The time after which the database is asked again.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Finds leaps of a clock, and counts the pause after one.
#[derive(Debug, Clone)]
struct LeapWatch {
    wall: SystemTime,
    monotonic: Instant,
    pause: Duration,
    stored: Instant,
    /// The number of confirmations that this process knows of.
    confirmations: u64,
}

impl LeapWatch {
    /// Begins with the stored reading of an earlier run.
    fn from_reading(stored: Option<StoredReading>, wall: SystemTime, monotonic: Instant) -> Self {
        let mut pause = Duration::from_secs(stored.map_or(0, |stored| stored.pause)).min(PAUSE);
        if let Some(stored) = stored {
            let last = UNIX_EPOCH + Duration::from_secs(stored.at);
            if time_difference(last, wall) > MAX_ABSENCE {
                report_leap("the last stored time is more than a day away", last, wall);
                pause = PAUSE;
            }
        }
        let confirmations = stored.map_or(0, |stored| stored.confirmations);
        Self { wall, monotonic, pause, stored: monotonic, confirmations }
    }

    /// Ends the pause: the clock is right.
    fn end_pause(&mut self, wall: SystemTime, monotonic: Instant) {
        (self.wall, self.monotonic, self.stored) = (wall, monotonic, monotonic);
        self.pause = Duration::ZERO;
        self.confirmations += 1;
    }

    /// Ends the pause if an operator has confirmed the clock at another node.
    fn merge_reading(&mut self, stored: StoredReading) {
        if stored.confirmations > self.confirmations {
            self.confirmations = stored.confirmations;
            self.pause = Duration::ZERO;
            tracing::warn!(
                "an operator has confirmed the clock at another node; the pause has ended"
            );
        }
    }

    /// Takes a reading; returns true if it was a leap.
    fn observe_time(&mut self, wall: SystemTime, monotonic: Instant) -> bool {
        let elapsed = monotonic.saturating_duration_since(self.monotonic);
        let expected = self.wall + elapsed;
        (self.wall, self.monotonic) = (wall, monotonic);
        if time_difference(expected, wall) > MAX_DRIFT {
            report_leap("it differs from the monotonic clock by more than an hour", expected, wall);
            self.pause = PAUSE;
            return true;
        }
        self.pause = self.pause.saturating_sub(elapsed);
        false
    }

    fn current_reading(&self) -> StoredReading {
        let at = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // Rounded up, so that a pause does not end early by many restarts.
        let pause = self.pause.as_secs() + u64::from(self.pause.subsec_nanos() > 0);
        StoredReading { at, pause, confirmations: self.confirmations }
    }
}

fn report_leap(cause: &str, expected: SystemTime, found: SystemTime) {
    let [expected, found] =
        [expected, found].map(|time| ginnel_api::Timestamp::from_system_time(time).0);
    tracing::error!(
        expected,
        found,
        cause,
        "the clock has leapt; for 24 h nothing is deleted or expires. If the clock is right, confirm it with `ginnel \
         api clock confirm`"
    );
}

fn time_difference(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other).unwrap_or_else(|error| error.duration())
}

/// The clock of a store. Until it is started, it is the machine's, and never pauses.
#[derive(Default)]
pub struct AgeClock {
    origin: OnceLock<Origin>,
    /// Absent if an operator or a test vouches for the clock.
    watch: Mutex<Option<LeapWatch>>,
    /// The time at which the database was asked for its time.
    asked: Mutex<Option<Instant>>,
}

impl AgeClock {
    /// Returns the rest of the pause after a leap, in running time.
    pub fn remaining_pause(&self) -> Option<Duration> {
        let watch = self.lock_watch();
        watch.as_ref().map(|watch| watch.pause).filter(|pause| !pause.is_zero())
    }

    /// The clock of the machine, or the one that it follows.
    pub(super) fn origin(&self) -> Origin {
        self.origin.get().cloned().unwrap_or_default()
    }

    /// Reads the clock by this origin from now on.
    pub(super) fn set_origin(&self, origin: Origin) {
        self.origin.get_or_init(|| origin);
    }

    /// Begins to look for leaps after the reading of an earlier run; returns the reading to store.
    pub(super) fn start_watch(
        &self,
        stored: Option<StoredReading>,
        now: SystemTime,
    ) -> StoredReading {
        let watch = LeapWatch::from_reading(stored, now, Instant::now());
        let reading = watch.current_reading();
        *self.lock_watch() = Some(watch);
        reading
    }

    /// Returns true unless the database was asked a moment ago; the origin follows its answer by the monotonic clock.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_none_or(|asked| now.saturating_duration_since(asked) >= READ_INTERVAL)
    }

    /// Takes note that the database is asked at this time.
    pub(super) fn record_query(&self, now: Instant) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Takes a reading; returns it if it is to be stored, and true if the clock has leapt.
    pub(super) fn observe_time(&self, wall: SystemTime) -> Option<(StoredReading, bool)> {
        let monotonic = Instant::now();
        let mut watch = self.lock_watch();
        let watch = watch.as_mut()?;
        let has_leapt = watch.observe_time(wall, monotonic);
        if !has_leapt && monotonic.saturating_duration_since(watch.stored) < STORE_INTERVAL {
            return None;
        }
        watch.stored = monotonic;
        Some((watch.current_reading(), has_leapt))
    }

    /// Ends the pause, since an operator vouches for the clock; returns the reading to store.
    pub(super) fn end_pause(&self, wall: SystemTime) -> Option<StoredReading> {
        let mut watch = self.lock_watch();
        let watch = watch.as_mut()?;
        watch.end_pause(wall, Instant::now());
        Some(watch.current_reading())
    }

    /// Takes note of the stored reading, which another node may have written.
    pub(super) fn merge_reading(&self, stored: StoredReading) {
        if let Some(watch) = self.lock_watch().as_mut() {
            watch.merge_reading(stored);
        }
    }

    /// Takes note of the confirmations that came before a leap: they do not end the pause after it.
    pub(super) fn record_confirmations(&self, confirmations: u64) {
        if let Some(watch) = self.lock_watch().as_mut() {
            watch.confirmations = watch.confirmations.max(confirmations);
        }
    }

    fn lock_watch(&self) -> MutexGuard<'_, Option<LeapWatch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn wall() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }

    fn stored(at: SystemTime, pause: Duration) -> Option<StoredReading> {
        let at = at.duration_since(UNIX_EPOCH).unwrap().as_secs();
        Some(StoredReading { at, pause: pause.as_secs(), confirmations: 0 })
    }

    #[test]
    fn looks_at_the_clock_do_not_put_off_the_next_question() {
        let (clock, asked) = (AgeClock::default(), Instant::now());
        assert!(clock.is_due(asked));
        clock.start_watch(None, wall());

        clock.record_query(asked);
        clock.observe_time(wall());

        assert!(!clock.is_due(asked + READ_INTERVAL / 2));
        assert!(clock.is_due(asked + READ_INTERVAL));
    }

    #[test]
    fn a_start_after_more_than_a_day_pauses_in_both_directions() {
        let begin = Instant::now();
        let pause = |stored| LeapWatch::from_reading(stored, wall(), begin).pause;

        assert_eq!(pause(None), Duration::ZERO);
        assert_eq!(pause(stored(wall() - DAY, Duration::ZERO)), Duration::ZERO);
        assert_eq!(pause(stored(wall() - DAY - HOUR, Duration::ZERO)), PAUSE);
        assert_eq!(pause(stored(wall() + 400 * DAY, Duration::ZERO)), PAUSE);
        assert_eq!(pause(stored(wall(), 5 * HOUR)), 5 * HOUR, "the rest of the pause before");
    }

    #[test]
    fn a_leap_while_running_pauses_for_a_day_of_running_time() {
        for leapt in [wall() + 3 * DAY, wall() - 3 * DAY] {
            let begin = Instant::now();
            let mut watch = LeapWatch::from_reading(None, wall(), begin);

            assert!(!watch.observe_time(wall() + HOUR, begin + HOUR));
            assert!(watch.pause.is_zero());
            assert!(watch.observe_time(leapt, begin + HOUR));
            assert!(!watch.observe_time(leapt + 23 * HOUR, begin + 24 * HOUR));
            assert_eq!(watch.pause, HOUR);
            assert!(!watch.observe_time(leapt + 24 * HOUR, begin + 25 * HOUR));
            assert!(watch.pause.is_zero());
        }
    }

    #[test]
    fn a_confirmation_ends_the_pause_here_and_at_other_nodes_until_the_next_leap() {
        let begin = Instant::now();
        let [mut one, mut other] = [(), ()].map(|()| LeapWatch::from_reading(None, wall(), begin));
        for node in [&mut one, &mut other] {
            assert!(node.observe_time(wall() + 3 * DAY, begin));
        }

        one.end_pause(wall() + 3 * DAY, begin);
        other.merge_reading(one.current_reading());

        assert!(one.pause.is_zero() && other.pause.is_zero());
        assert!(!one.observe_time(wall() + 3 * DAY + HOUR, begin + HOUR));
        assert!(other.observe_time(wall(), begin + HOUR));
        other.merge_reading(one.current_reading());
        assert_eq!(other.pause, PAUSE, "the confirmation is older than the leap");
    }

    #[test]
    fn a_clock_that_is_set_by_less_than_an_hour_has_not_leapt() {
        let begin = Instant::now();
        let mut watch = LeapWatch::from_reading(None, wall(), begin);

        assert!(!watch.observe_time(wall() + Duration::from_secs(3500), begin));
        assert!(!watch.observe_time(wall(), begin));
    }
}
