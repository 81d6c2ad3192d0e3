//! What waits unread, counted over many streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::stream_state::WINDOW;

/// How much may wait unread on the streams of a session by default before those that have most are ended.
pub const DEFAULT_BACKLOG_BYTES: usize = 6 << 20;
/// With more than this part of it, pieces are copied, so that none keeps the whole buffer it came in.
const HIGH_PART: usize = 6;
/// How much may wait on a stream whatever waits on others.
const MIN_STREAM_BYTES: usize = 8 << 10;

/// What waits unread on the counted streams of a session.
///
/// A peer may send a whole window on each stream, which is not negotiated: five hundred streams that
/// nobody reads would hold 125 MiB.
#[derive(Debug)]
pub struct UnreadBacklog {
    bytes: AtomicUsize,
    limit: usize,
}

impl UnreadBacklog {
    /// Nothing so far, and at most about so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), limit }
    }
}

impl Default for UnreadBacklog {
    fn default() -> Self {
        Self::new(DEFAULT_BACKLOG_BYTES)
    }
}

/// What waits unread on some of these streams, such as those of one visitor.
#[derive(Debug)]
pub struct UnreadAccount {
    backlog: Arc<UnreadBacklog>,
    bytes: AtomicUsize,
}

impl UnreadAccount {
    /// An account of a session.
    pub fn new(backlog: &Arc<UnreadBacklog>) -> Arc<Self> {
        Arc::new(Self { backlog: backlog.clone(), bytes: AtomicUsize::default() })
    }

    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.backlog.bytes.fetch_add(bytes, Relaxed);
    }

    pub fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.backlog.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Whether so much waits that no byte more than that should be held.
    pub fn is_high(&self) -> bool {
        self.backlog.bytes.load(Relaxed) > self.backlog.limit / HIGH_PART
    }

    /// Whether a stream of this account, with so much unread, has more than there is room for: too
    /// much waits in the session, and on these streams more than one of them may have.
    pub fn is_over(&self, unread: usize) -> bool {
        unread > MIN_STREAM_BYTES
            && self.backlog.bytes.load(Relaxed) > self.backlog.limit
            && self.bytes.load(Relaxed) > WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BACKLOG_BYTES: usize = 64 << 20;
    const HIGH_BACKLOG_BYTES: usize = MAX_BACKLOG_BYTES / HIGH_PART;

    /// An account with so much unread, in a session where others have the rest of `session`.
    fn account(own: usize, session: usize) -> Arc<UnreadAccount> {
        let backlog = Arc::new(UnreadBacklog::new(MAX_BACKLOG_BYTES));
        let (account, others) = (UnreadAccount::new(&backlog), UnreadAccount::new(&backlog));
        account.add(own);
        others.add(session - own);
        account
    }

    #[test]
    fn a_stream_has_too_much_only_where_session_account_and_stream_have() {
        let (session, own, stream) = (MAX_BACKLOG_BYTES + 1, WINDOW + 1, MIN_STREAM_BYTES + 1);

        assert!(account(own, session).is_over(stream));
        assert!(!account(own, session - 1).is_over(stream), "the session has room");
        assert!(!account(own - 1, session).is_over(stream), "the account has room");
        assert!(!account(own, session).is_over(stream - 1), "so much may every stream have");
    }

    #[test]
    fn pieces_are_copied_long_before_streams_are_ended() {
        assert!(!account(0, HIGH_BACKLOG_BYTES).is_high());
        assert!(account(0, HIGH_BACKLOG_BYTES + 1).is_high());
        assert!(!account(WINDOW + 1, HIGH_BACKLOG_BYTES + 1).is_over(WINDOW));
    }

    #[test]
    fn what_is_read_counts_no_longer_for_account_and_session() {
        let account = account(MAX_BACKLOG_BYTES + 1, MAX_BACKLOG_BYTES + 1);

        account.subtract(1);
        assert!(!account.is_over(WINDOW));
        account.add(1);
        assert!(account.is_over(WINDOW));

        account.subtract(MAX_BACKLOG_BYTES + 1 - HIGH_BACKLOG_BYTES);
        assert!(!account.is_high());
    }
}
