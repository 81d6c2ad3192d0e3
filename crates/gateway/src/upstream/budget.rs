//! Room for connections that several targets share, as the tunnels of one agent do.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// Room for connections that several targets share: as long as a visitor waits for one, none idles.
#[derive(Default)]
pub struct ConnectionBudget {
    waiting: AtomicUsize,
    pools: Mutex<Vec<Weak<dyn IdleConnections>>>,
}

/// Connections that wait for the next request.
pub trait IdleConnections: Send + Sync {
    /// Drops all, so that others can be opened; false when there was none.
    fn close_idle(&self) -> bool;
}

/// A visitor who waits for a connection.
pub struct WaitingVisitor<'a> {
    budget: &'a ConnectionBudget,
    /// Whether idle connections were closed for the visitor.
    pub has_closed_idle: bool,
}

impl ConnectionBudget {
    /// Notes a visitor who waits, and closes the idle connections of all targets.
    pub fn add_waiter(&self) -> WaitingVisitor<'_> {
        // Before the pools are looked at: a connection that is put back later is closed there.
        self.waiting.fetch_add(1, SeqCst);
        let pools: Vec<_> = self.lock_pools().iter().filter_map(Weak::upgrade).collect();
        let has_closed_idle = pools.iter().filter(|pool| pool.close_idle()).count() > 0;
        WaitingVisitor { budget: self, has_closed_idle }
    }

    /// Whether a visitor waits.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Counts in what idles in another pool.
    pub fn add_pool(&self, pool: Weak<dyn IdleConnections>) {
        let mut pools = self.lock_pools();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    fn lock_pools(&self) -> MutexGuard<'_, Vec<Weak<dyn IdleConnections>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingVisitor<'_> {
    fn drop(&mut self) {
        self.budget.waiting.fetch_sub(1, SeqCst);
    }
}
