//! A limit of how many things happen in any time of a given length.

use std::collections::VecDeque;
use std::ops::Add;
use std::time::Duration;

/// The moments of the last window, and those that are reserved for later, in their order. `T` is the time of a clock, such
/// as `Instant`, or a `Duration` since an epoch.
#[derive(Debug)]
pub struct SlidingWindow<T>(VecDeque<T>);

impl<T> Default for SlidingWindow<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy + Ord + Add<Duration, Output = T>> SlidingWindow<T> {
    /// Takes `now`, if fewer than `max` moments are in the window before it.
    ///
    /// # Errors
    /// If the window is full: the moment at which it has room again.
    pub fn take(&mut self, now: T, max: usize, window: Duration) -> Result<(), T> {
        let free = self.free_at(now, max, window);
        if free > now {
            return Err(free);
        }
        self.reserve(now);
        Ok(())
    }

    /// Returns the next moment that can be reserved, which is not before any moment that is reserved already.
    pub fn next(&mut self, now: T, max: usize, window: Duration) -> T {
        let free = self.free_at(now, max, window);
        self.0.back().map_or(free, |last| free.max(*last))
    }

    /// Reserves a moment. One before the last is reserved at the last, so that the moments keep their order.
    pub fn reserve(&mut self, time: T) {
        let time = self.0.back().map_or(time, |last| time.max(*last));
        self.0.push_back(time);
    }

    /// Gives back a moment that was reserved.
    pub fn release(&mut self, time: T) {
        let position = self.0.iter().rposition(|reserved| *reserved == time);
        position.and_then(|at| self.0.remove(at));
    }

    fn free_at(&mut self, now: T, max: usize, window: Duration) -> T {
        while self.0.front().is_some_and(|first| *first + window <= now) {
            self.0.pop_front();
        }
        // The moment that must have left the window.
        let before = self.0.len().checked_sub(max).and_then(|at| self.0.get(at));
        before.map_or(now, |before| (*before + window).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_window_slides() {
        let mut window = SlidingWindow::default();
        let mut take = |seconds| window.take(Duration::from_secs(seconds), 2, MINUTE);

        assert_eq!([take(0), take(30)], [Ok(()), Ok(())]);
        assert_eq!(take(59), Err(Duration::from_secs(60)));
        assert_eq!(take(60), Ok(()));
        assert_eq!(take(61), Err(Duration::from_secs(90)));
        assert_eq!(take(90), Ok(()));
    }

    #[test]
    fn a_clock_that_goes_back_rejects_nothing() {
        let mut window = SlidingWindow::default();

        assert_eq!(window.take(Duration::from_secs(10), 3, MINUTE), Ok(()));
        assert_eq!(window.take(Duration::from_secs(9), 3, MINUTE), Ok(()));
        assert_eq!(window.take(Duration::from_secs(10), 3, MINUTE), Ok(()));
        assert_eq!(window.take(Duration::from_secs(11), 3, MINUTE), Err(Duration::from_secs(70)));
    }

    #[test]
    fn a_smaller_limit_counts_what_is_there() {
        let mut window = SlidingWindow::default();
        for seconds in 0..5 {
            assert_eq!(window.take(Duration::from_secs(seconds), 5, MINUTE), Ok(()));
        }

        assert_eq!(window.take(Duration::from_secs(5), 2, MINUTE), Err(Duration::from_secs(63)));
    }
}
