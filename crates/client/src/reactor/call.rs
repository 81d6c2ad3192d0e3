//! A call that a reactor drives, and how far it is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::EventFilter;
use crate::attempts::Attempts;
use crate::connection::HttpExchange;
use crate::pool::{ConnectionPool, Lease, Waiter};
use crate::socket::{ClientSocket, POLL_INTERVAL};
use crate::time_limit::TimeLimit;

/// A call under way.
pub(super) struct ActiveCall {
    pub(super) pool: Arc<ConnectionPool<ClientSocket>>,
    pub(super) attempts: Attempts,
    pub(super) limit: Option<TimeLimit>,
    pub(super) filter: Option<EventFilter>,
    pub(super) stage: CallStage,
}

/// What a call waits for.
pub(super) enum CallStage {
    /// In line for a connection.
    Queued(Arc<Waiter<ClientSocket>>),
    /// Until the connection is open; the flag says that nobody waits any more.
    Opening(Lease<ClientSocket>, Arc<AtomicBool>),
    Exchanging {
        lease: Lease<ClientSocket>,
        exchange: HttpExchange,
        is_sending: bool,
    },
    /// Until then; true when the attempt has its slot of the rate limit.
    Pausing(Instant, bool),
    Over,
}

impl ActiveCall {
    /// When it is to be looked at: what pauses now and then, as the client may be closed.
    pub(super) fn due_time(&self, now: Instant) -> Option<Instant> {
        match self.stage {
            CallStage::Pausing(until, _) => Some(until.min(now + POLL_INTERVAL)),
            _ => self.limit.map(|limit| limit.time),
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.stage, CallStage::Pausing(..))
            || self.limit.is_some_and(|limit| limit.time <= now)
    }
}
