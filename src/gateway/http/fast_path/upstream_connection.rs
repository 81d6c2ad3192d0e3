//! A connection to an agent that carries requests as bytes.

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::gateway::Io;
use crate::gateway::upstream::http1::ConnectionIdentity;
use crate::gateway::upstream::pool::PooledConnection;
use crate::reuse::{IdleState, idle_state};

/// A connection to an agent that carries requests as bytes.
pub(crate) struct RawConnection {
    pub(crate) io: Io,
    identity: Option<ConnectionIdentity>,
    idle_since: Option<Instant>,
}

impl RawConnection {
    /// A connection that has carried nothing.
    pub(crate) fn new(io: Io, identity: Option<ConnectionIdentity>) -> Self {
        Self { io, identity, idle_since: None }
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

impl PooledConnection for RawConnection {
    fn identity(&self) -> Option<&ConnectionIdentity> {
        self.identity.as_ref()
    }

    fn idle(&self) -> Option<Duration> {
        self.idle_since.map(|since| since.elapsed())
    }

    fn state(&mut self) -> IdleState {
        idle_state(Pin::new(&mut self.io))
    }
}
