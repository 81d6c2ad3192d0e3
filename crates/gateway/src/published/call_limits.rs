//! How many calls are on their way at once: for each of those who make them, and for all together.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many calls of one caller are on their way.
pub const MAX_CALLS: usize = 8;
/// How many there are of all callers.
pub const MAX_TOTAL_CALLS: usize = 64;
/// For how many callers it is known how many there are, before those without any are forgotten.
const MAX_CALLERS: usize = 1024;
/// How long a call may wait for others.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// A call has waited too long for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many calls are on their way")]
pub struct TooManyCalls;

/// How many calls there may be, by caller.
pub struct CallLimits<K> {
    callers: Mutex<HashMap<K, Weak<CallLimit>>>,
    total: Arc<Semaphore>,
}

/// How many calls there may be of one caller, and of all of them.
pub struct CallLimit {
    own: Arc<Semaphore>,
    total: Arc<Semaphore>,
}

impl<K> Default for CallLimits<K> {
    fn default() -> Self {
        Self { callers: Mutex::default(), total: Arc::new(Semaphore::new(MAX_TOTAL_CALLS)) }
    }
}

impl<K: Hash + Eq> CallLimits<K> {
    /// The limit of a caller.
    pub fn for_caller(&self, caller: K) -> Arc<CallLimit> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = callers.get(&caller).and_then(Weak::upgrade) {
            return limit;
        }
        if callers.len() >= MAX_CALLERS {
            callers.retain(|_, limit| limit.strong_count() > 0);
        }
        let own = Arc::new(Semaphore::new(MAX_CALLS));
        let limit = Arc::new(CallLimit { own, total: self.total.clone() });
        callers.insert(caller, Arc::downgrade(&limit));
        limit
    }
}

impl CallLimit {
    /// Waits for a place; for one among all last, so that nobody holds one up who waits for their own.
    ///
    /// # Errors
    /// When there was none for too long.
    pub async fn acquire(&self) -> Result<[OwnedSemaphorePermit; 2], TooManyCalls> {
        let places = async {
            let own = self.own.clone().acquire_owned().await.map_err(|_| TooManyCalls)?;
            Ok([own, self.total.clone().acquire_owned().await.map_err(|_| TooManyCalls)?])
        };
        tokio::time::timeout(QUEUE_TIMEOUT, places).await.map_err(|_| TooManyCalls).flatten()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_callers_together_make_a_bounded_number_of_calls() {
        let limits = CallLimits::<usize>::default();
        let all: Vec<_> =
            (0..=MAX_TOTAL_CALLS / MAX_CALLS).map(|it| limits.for_caller(it)).collect();
        let (last, others) = all.split_last().unwrap();
        let mut held = Vec::new();
        for _ in 0..MAX_CALLS {
            for other in others {
                held.push(other.acquire().await.unwrap());
            }
        }
        let soon = Duration::from_millis(50);

        assert!(tokio::time::timeout(soon, last.acquire()).await.is_err());
        held.pop();
        let mut own = vec![last.acquire().await.unwrap()];
        drop(held);
        for _ in 1..MAX_CALLS {
            own.push(last.acquire().await.unwrap());
        }
        assert!(tokio::time::timeout(soon, last.acquire()).await.is_err(), "of its own");
    }
}
