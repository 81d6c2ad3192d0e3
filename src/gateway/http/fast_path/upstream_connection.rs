//! A connection to an agent that carries requests as bytes.

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::gateway::Io;
use crate::gateway::upstream::http1::Named;
use crate::gateway::upstream::pool::Idle;
use crate::reuse::{IdleState, idle_state};

/// A connection to an agent that carries requests as bytes.
pub(crate) struct RawLink {
    pub(crate) io: Io,
    named: Option<Named>,
    idle_since: Option<Instant>,
}

impl RawLink {
    /// A connection that has carried nothing.
    pub(crate) fn new(io: Io, named: Option<Named>) -> Self {
        Self { io, named, idle_since: None }
    }

    /// Whether it has carried a request before.
    pub(crate) fn is_used(&self) -> bool {
        self.idle_since.is_some()
    }

    /// Marks the beginning of an idle time.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Some(Instant::now());
    }
}

impl Idle for RawLink {
    fn named(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    fn idle(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    fn state(&mut self) -> IdleState {
        idle_state(Pin::new(&mut self.io))
    }
}
