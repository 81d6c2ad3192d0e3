//! What requests share: counters and breakers. Bounded, and nothing in it does I/O.

pub mod breaker;
pub mod limits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use self::breaker::{Breaker, BreakerLimits};
use self::limits::RateLimits;

/// What the requests of one policy share.
///
/// Whoever holds it for longer than a policy keeps the counters when the policy is replaced.
#[derive(Debug, Default)]
pub struct PolicyState {
    /// The counters of rate limits.
    pub rate_limits: RateLimits,
    /// By rule and action.
    breakers: Mutex<HashMap<(usize, usize), Arc<Breaker>>>,
}

impl PolicyState {
    /// The breaker of an action; a new one if its limits have changed.
    pub(super) fn breaker_for(
        &self,
        rule: usize,
        action: usize,
        limits: BreakerLimits,
    ) -> Arc<Breaker> {
        let mut breakers = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = breakers.get(&(rule, action)).filter(|known| known.limits == limits);
        if let Some(known) = known {
            return known.clone();
        }
        let made = Breaker::new(limits);
        breakers.insert((rule, action), made.clone());
        made
    }
}
