//! Connections to upstreams that wait for the next request.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ginnel_base::logging::ignore;
use ginnel_http1::reuse::{IdleState, ReuseBan};

use crate::upstream::budget::{ConnectionBudget, IdleConnections};
use crate::upstream::http1::{ConnectionIdentity, Http1Connection};
use crate::upstream::http2::Http2Connection;
use crate::upstream::target::Target;

/// How many connections to one target wait at most, for each way; all pools share the number.
type MaxIdle = Arc<AtomicUsize>;

/// A connection that can wait.
pub trait PooledConnection {
    /// Whose requests it may carry; none when everybody's.
    fn identity(&self) -> Option<&ConnectionIdentity>;

    /// How long it has been idle; none when it has not carried a request yet.
    fn idle_time(&self) -> Option<Duration>;

    /// What the upstream has done meanwhile.
    fn idle_state(&mut self) -> IdleState;
}

/// The idle connections of one target.
pub struct UpstreamPool {
    /// Those that HTTP/1.1 is spoken on.
    pub http1: IdlePool<Http1Connection>,
    /// Those that HTTP/2 is spoken on.
    pub http2: IdlePool<Http2Connection>,
    ban: ReuseBan,
}

impl UpstreamPool {
    fn new(max_idle: &MaxIdle, budget: Option<Arc<ConnectionBudget>>) -> Self {
        let ban = ReuseBan::default();
        let http1 = IdlePool::new(max_idle, ban.clone(), budget.clone());
        let http2 = IdlePool::new(max_idle, ban.clone(), budget);
        Self { http1, http2, ban }
    }

    /// Whether a connection that has carried an answer may be kept for another.
    pub fn permits_reuse(&self, state: IdleState) -> bool {
        self.ban.permits_reuse(state)
    }

    /// Waits for the first response on a new connection, and gives the idle connections up if it does not come soon.
    pub async fn await_response<T>(&self, waiting: impl Future<Output = T>) -> T {
        let give_up = || ignore(self.close_idle(), "there may be none");
        self.ban.await_response(waiting, give_up).await
    }

    /// Drops all, and whatever is put back later: the target takes no more requests.
    fn close(&self) {
        self.http1.close();
        self.http2.close();
    }

    /// Whether there is nothing to remember of the target.
    fn is_empty(&self) -> bool {
        self.http1.is_empty() && self.http2.is_empty() && !self.ban.is_active()
    }

    fn sweep_idle(&self, max_idle: Duration) {
        self.http1.sweep_idle(max_idle);
        self.http2.sweep_idle(max_idle);
    }
}

impl IdleConnections for UpstreamPool {
    fn close_idle(&self) -> bool {
        let (http1, http2) = (self.http1.clear(), self.http2.clear());
        http1 || http2
    }
}

/// Idle connections of one kind.
pub struct IdlePool<T> {
    idle: Mutex<IdleQueue<T>>,
    max_idle: MaxIdle,
    ban: ReuseBan,
    budget: Option<Arc<ConnectionBudget>>,
}

/// Idle connections, the one that was used last at the end.
struct IdleQueue<T> {
    connections: VecDeque<T>,
    /// No connection waits any more.
    is_closed: bool,
}

impl<T: PooledConnection> IdlePool<T> {
    fn new(max_idle: &MaxIdle, ban: ReuseBan, budget: Option<Arc<ConnectionBudget>>) -> Self {
        let idle = Mutex::new(IdleQueue { connections: VecDeque::new(), is_closed: false });
        Self { idle, max_idle: max_idle.clone(), ban, budget }
    }

    /// A connection that can carry a request of whom it named: the one that was used last.
    pub fn take_matching(&self, identity: Option<&ConnectionIdentity>) -> Option<T> {
        loop {
            let mut connection = {
                let connections = &mut self.lock_queue().connections;
                let at =
                    connections.iter().rposition(|connection| connection.identity() == identity)?;
                connections.remove(at)?
            };
            if self.ban.permits_reuse(connection.idle_state()) {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub fn put(&self, connection: T) {
        let mut idle = self.lock_queue();
        if idle.is_closed || self.ban.is_starving() {
            return;
        }
        idle.connections.push_back(connection);
        // The visitor that has been away for longest is the least likely to come again.
        let max_idle = self.max_idle.load(Relaxed);
        while idle.connections.len() > max_idle {
            idle.connections.pop_front();
        }
        drop(idle);
        // Asked after it was put: whoever began to wait before that has not seen it.
        if self.budget.as_ref().is_some_and(|budget| budget.is_awaited()) {
            self.clear();
        }
    }

    fn close(&self) {
        let mut idle = self.lock_queue();
        idle.is_closed = true;
        idle.connections.clear();
    }

    fn is_empty(&self) -> bool {
        self.lock_queue().connections.is_empty()
    }

    fn clear(&self) -> bool {
        !std::mem::take(&mut self.lock_queue().connections).is_empty()
    }

    /// Drops what has waited for too long, or must not be used any more.
    fn sweep_idle(&self, max_idle: Duration) {
        self.lock_queue().connections.retain_mut(|connection| {
            connection.idle_time().is_some_and(|idle| idle < max_idle)
                && self.ban.permits_reuse(connection.idle_state())
        });
    }

    fn lock_queue(&self) -> MutexGuard<'_, IdleQueue<T>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools of all targets, by their keys.
pub struct UpstreamPools {
    pools: Mutex<HashMap<String, Arc<UpstreamPool>>>,
    max_idle: MaxIdle,
}

impl UpstreamPools {
    /// Pools in which so many connections wait at most, for each way to a target.
    pub fn new(max_idle: usize) -> Self {
        Self { pools: Mutex::default(), max_idle: Arc::new(AtomicUsize::new(max_idle)) }
    }

    /// Changes how many connections wait at most.
    pub fn set_max_idle(&self, max_idle: usize) {
        self.max_idle.store(max_idle, Relaxed);
    }

    /// The pool of a target, and of all with its key.
    pub fn pool_for_target(&self, target: &dyn Target) -> Arc<UpstreamPool> {
        let key = target.key();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(key) {
            return pool.clone();
        }
        let budget = target.connection_budget();
        let pool = Arc::new(UpstreamPool::new(&self.max_idle, budget.clone()));
        pools.insert(key.to_owned(), pool.clone());
        if let Some(budget) = budget {
            let pool: Weak<UpstreamPool> = Arc::downgrade(&pool);
            budget.add_pool(pool);
        }
        pool
    }

    /// Drops the idle connections to the target with this key, which takes no more requests; those
    /// that carry one are dropped when it has ended.
    pub fn close_pool(&self, key: &str) {
        let pool = self.pools.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(pool) = pool {
            pool.close();
        }
    }

    /// Drops what nobody needs any more, and connections that have waited for this long: an agent has
    /// only so many, and upstreams close theirs soon.
    pub fn sweep_idle(&self, max_idle: Duration) {
        let all: Vec<_> = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
            pools.values().cloned().collect()
        };
        all.iter().for_each(|pool| pool.sweep_idle(max_idle));
    }
}
