//! What was counted of all sessions of agents.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What was counted of all sessions of agents, those that have ended as well.
#[derive(Debug, Default)]
pub struct SessionCounts {
    sessions: AtomicU64,
    reconnects: AtomicU64,
    streams: AtomicU64,
}

impl SessionCounts {
    /// An agent has begun a session; `returns` when it had one before.
    pub fn session_begun(&self, returns: bool) {
        self.sessions.fetch_add(1, Relaxed);
        self.reconnects.fetch_add(u64::from(returns), Relaxed);
    }

    /// A stream was opened for a visitor.
    pub fn stream_opened(&self) {
        self.streams.fetch_add(1, Relaxed);
    }

    pub fn sessions(&self) -> u64 {
        self.sessions.load(Relaxed)
    }

    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Relaxed)
    }

    pub fn streams(&self) -> u64 {
        self.streams.load(Relaxed)
    }
}
