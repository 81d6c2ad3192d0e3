//! How long an attempt or a call may take.

use std::time::{Duration, Instant};

use super::Cause;

/// When a wait is over, and what that means then.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimit {
    pub time: Instant,
    kind: TimeLimitKind,
    duration: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum TimeLimitKind {
    Attempt,
    Call,
}

impl TimeLimit {
    /// A limit that begins at a time; none where it lies beyond all times.
    pub fn new(from: Instant, duration: Duration, kind: TimeLimitKind) -> Option<Self> {
        Some(Self { time: from.checked_add(duration)?, kind, duration })
    }

    /// Recent errors when it is over; nothing was sent when there is no connection yet.
    pub fn timeout_cause(&self, is_connected: bool) -> Cause {
        match self.kind {
            TimeLimitKind::Call => Cause::Deadline(self.duration),
            TimeLimitKind::Attempt if is_connected => Cause::Timeout(self.duration),
            TimeLimitKind::Attempt => Cause::ConnectTimeout(self.duration),
        }
    }

    /// How much time is left.
    pub fn remaining(&self) -> Duration {
        self.time.saturating_duration_since(Instant::now())
    }
}
