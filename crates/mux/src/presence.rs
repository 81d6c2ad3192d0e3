//! What the task that beats and the task that reads tell each other.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Whether the peer is there, and when it is time to look at what is held for it.
#[derive(Debug, Default)]
pub struct Presence {
    received: AtomicBool,
    /// The number of times that bytes have come. Only the task that reads writes it.
    reads: AtomicU32,
    due: AtomicBool,
}

impl Presence {
    /// Bytes of the peer have come.
    pub fn record_received(&self) {
        self.received.store(true, Relaxed);
        self.reads.store(self.reads.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns the number of times that bytes have come.
    pub fn read_count(&self) -> u32 {
        self.reads.load(Relaxed)
    }

    /// Whether bytes have come since this was last asked for.
    pub fn take_received(&self) -> bool {
        self.received.swap(false, Relaxed)
    }

    /// Some seconds have passed: what is held for a peer that sends little may be given back.
    pub fn request_review(&self) {
        self.due.store(true, Relaxed);
    }

    /// Whether that is due; once for each time.
    pub fn take_review(&self) -> bool {
        // A read is cheaper than an exchange, and it is asked for with every turn.
        self.due.load(Relaxed) && self.due.swap(false, Relaxed)
    }
}
