//! Connections to upstreams that wait for the next request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::gateway::http::fast_path::RawLink;
use crate::gateway::upstream::connection::Wire;
use crate::gateway::upstream::http1::Named;
use crate::reuse::{IdleState, ReuseBan};

/// How many connections to one target wait at most, for each way.
const MOST: usize = 128;
/// How long a connection waits: an agent has only so many, and upstreams close theirs soon.
const IDLE: Duration = Duration::from_secs(20);

/// A connection that can wait.
pub(crate) trait Idle {
    /// Whose requests it may carry; none when everybody's.
    fn named(&self) -> Option<&Named>;

    /// How long it has been idle; none when it has not carried a request yet.
    fn idle(&self) -> Option<Duration>;

    /// What the upstream has done meanwhile.
    fn state(&mut self) -> IdleState;
}

/// The idle connections of one target.
pub(crate) struct Pool {
    /// Those that HTTP is spoken on.
    pub links: Shelf<Wire>,
    /// Those of the short way.
    pub raw: Shelf<RawLink>,
    ban: ReuseBan,
}

impl Default for Pool {
    fn default() -> Self {
        let ban = ReuseBan::default();
        Self { links: Shelf::new(ban.clone()), raw: Shelf::new(ban.clone()), ban }
    }
}

impl Pool {
    /// Whether a connection that has carried an answer may be kept for another.
    pub(crate) fn permits(&self, state: IdleState) -> bool {
        self.ban.permits(state)
    }

    /// Drops all, and whatever is put back later: the target takes no more requests.
    fn close(&self) {
        self.links.close();
        self.raw.close();
    }

    /// Drops all, so that others can be opened; false when there was none.
    pub(crate) fn clear(&self) -> bool {
        let (links, raw) = (self.links.clear(), self.raw.clear());
        links || raw
    }

    /// Whether there is nothing to remember of the target.
    fn is_empty(&self) -> bool {
        self.links.is_empty() && self.raw.is_empty() && !self.ban.is_active()
    }

    fn sweep(&self) {
        self.links.sweep();
        self.raw.sweep();
    }
}

/// Idle connections of one kind.
pub(crate) struct Shelf<T> {
    idlers: Mutex<Idlers<T>>,
    ban: ReuseBan,
}

/// Idle connections, the one that was used last at the end.
struct Idlers<T> {
    links: Vec<T>,
    /// No connection waits any more.
    is_closed: bool,
}

impl<T: Idle> Shelf<T> {
    fn new(ban: ReuseBan) -> Self {
        Self { idlers: Mutex::new(Idlers { links: Vec::new(), is_closed: false }), ban }
    }

    /// A connection that can carry a request of whom it named: the one that was used last.
    pub(crate) fn take(&self, named: Option<&Named>) -> Option<T> {
        loop {
            let mut link = {
                let links = &mut self.lock().links;
                let at = links.iter().rposition(|link| link.named() == named)?;
                links.remove(at)
            };
            if self.ban.permits(link.state()) {
                return Some(link);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(&self, link: T) {
        let mut idlers = self.lock();
        if idlers.is_closed {
            return;
        }
        if idlers.links.len() == MOST {
            // The visitor that has been away for longest is the least likely to come again.
            idlers.links.remove(0);
        }
        idlers.links.push(link);
    }

    fn close(&self) {
        let mut idlers = self.lock();
        idlers.is_closed = true;
        idlers.links.clear();
    }

    fn is_empty(&self) -> bool {
        self.lock().links.is_empty()
    }

    fn clear(&self) -> bool {
        !std::mem::take(&mut self.lock().links).is_empty()
    }

    /// Drops what has waited for too long, or must not be used any more.
    fn sweep(&self) {
        self.lock().links.retain_mut(|link| {
            link.idle().is_some_and(|idle| idle < IDLE) && self.ban.permits(link.state())
        });
    }

    fn lock(&self) -> MutexGuard<'_, Idlers<T>> {
        self.idlers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools of all targets, by their keys.
#[derive(Default)]
pub(crate) struct Pools(Mutex<HashMap<String, Arc<Pool>>>);

impl Pools {
    /// The pool of the targets with this key.
    pub(crate) fn of(&self, key: &str) -> Arc<Pool> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(key) {
            return pool.clone();
        }
        pools.entry(key.to_owned()).or_default().clone()
    }

    /// Drops the idle connections to the target with this key, which takes no more requests; those
    /// that carry one are dropped when it has ended.
    pub(crate) fn close(&self, key: &str) {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(pool) = pool {
            pool.close();
        }
    }

    /// Drops what nobody needs any more.
    pub(crate) fn sweep(&self) {
        let all: Vec<_> = {
            let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            pools.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
            pools.values().cloned().collect()
        };
        all.iter().for_each(|pool| pool.sweep());
    }
}
