//! Waiting for an agent that was lost a moment ago: it may be back in no time, here or at another node.
//!
//! Whoever finds no target looks again for a while, where one was lost and not stopped. Most agents are back
//! within a second; who visits longer after the loss is told at once that nobody is there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::upstream::target::DialError;

/// How long after the loss of its agent a target is waited for.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often it is looked for meanwhile.
const RETURN_INTERVAL: Duration = Duration::from_millis(50);
/// How many may wait at once; others are told at once that nobody is there.
const MAX_WAITING: usize = 1024;

/// The places of those who wait.
pub struct WaitingPlaces(Arc<Semaphore>);

impl Default for WaitingPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_WAITING)))
    }
}

/// One request or connection that waits, if it has to.
pub struct AgentReturn<'g> {
    places: &'g WaitingPlaces,
    began: Option<Instant>,
    place: Option<OwnedSemaphorePermit>,
}

impl<'g> AgentReturn<'g> {
    pub fn new(places: &'g WaitingPlaces) -> Self {
        Self { places, began: None, place: None }
    }

    /// Waits a little where it is worth to look again for a target; false where it is not. `lost` is when an
    /// agent was lost that would have been one, and `last` why the last candidate did not take the visitor.
    pub async fn wait(&mut self, lost: Option<Instant>, last: Option<&DialError>) -> bool {
        let now = Instant::now();
        let is_first = self.began.is_none();
        let began = *self.began.get_or_insert(now);
        let lost = match last {
            None => lost,
            // Its session has just ended, and that is still to be noted.
            Some(DialError::Offline) if is_first => Some(now),
            Some(DialError::Offline) => lost,
            Some(DialError::Busy | DialError::Unreachable(_) | DialError::Reset) => None,
        };
        let is_recent = |since: Instant| now.duration_since(since) < RETURN_TIMEOUT;
        if !is_recent(began) || !lost.is_some_and(is_recent) {
            return false;
        }
        if self.place.is_none() {
            let Ok(place) = self.places.0.clone().try_acquire_owned() else { return false };
            self.place = Some(place);
        }
        tokio::time::sleep(RETURN_INTERVAL).await;
        true
    }
}
