//! When a slice of the decoding of a large body is over.

use std::time::{Duration, Instant};

/// How many bytes are read between two looks at the clock.
const CLOCK_CHECK_BYTES: usize = 16 << 10;

/// When a slice is over.
pub(super) struct TimeBudget {
    /// How far to read before the next look at the clock.
    until: usize,
    end: Option<Instant>,
}

impl TimeBudget {
    /// A slice that takes as long as it takes.
    pub(super) fn unlimited() -> Self {
        Self { until: usize::MAX, end: None }
    }

    /// A slice that takes about that long.
    pub(super) fn for_duration(duration: Duration) -> Self {
        Self { until: 0, end: Instant::now().checked_add(duration) }
    }

    /// Whether to stop, with so many bytes read.
    #[inline]
    pub(super) fn is_over(&mut self, read_bytes: usize) -> bool {
        read_bytes >= self.until && self.is_late(read_bytes)
    }

    /// Whether to stop, by the clock.
    pub(super) fn is_late(&mut self, read_bytes: usize) -> bool {
        self.until = read_bytes.saturating_add(CLOCK_CHECK_BYTES);
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}
