//! The wait for the rest of a response body.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The ticks for which the rest of a response body is waited for, counted from 1. 0 outside of a wait.
#[derive(Debug, Default)]
pub struct UpstreamWait(AtomicU32);

impl UpstreamWait {
    /// Begins a wait, unless one is under way, or ends it.
    pub fn set_waiting(&self, is_waiting: bool) {
        if (self.0.load(Relaxed) > 0) != is_waiting {
            self.0.store(u32::from(is_waiting), Relaxed);
        }
    }

    /// Counts a wait that is under way from the present tick.
    pub fn restart(&self) {
        let ticks = self.0.load(Relaxed);
        self.replace_ticks(ticks, ticks.min(1));
    }

    /// Counts a tick. Returns true if the wait has taken more than `limit` ticks.
    pub fn count_tick(&self, limit: u32) -> bool {
        let ticks = self.0.load(Relaxed);
        if ticks > 0 {
            self.replace_ticks(ticks, ticks.saturating_add(1));
        }
        ticks > limit
    }

    fn replace_ticks(&self, old: u32, new: u32) {
        let replaced = self.0.compare_exchange(old, new, Relaxed, Relaxed);
        ginnel_base::logging::ignore(replaced, "the wait has ended meanwhile");
    }
}
