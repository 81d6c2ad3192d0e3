//! Removes what destinations have left behind that are gone: step by step, since it may be much, while others
//! change the database.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use ginnel_net::{ShutdownPhase, ShutdownSignal};
use ginnel_store::{Store, StoreResult, Transaction, View};

use super::backoff;

/// How many events are looked at, or removed, in one step.
const STEP: usize = 500;
/// How long after its first failure the database is used again.
const PAUSE: Duration = Duration::from_secs(1);

/// Removes it all, and ends.
pub(super) async fn sweep_events(store: Arc<Store>, mut signal: ShutdownSignal) {
    let mut sweeper = Sweeper { store, last_event: Some(String::new()) };
    let mut failures: u32 = 0;
    while signal.phase() == ShutdownPhase::Running {
        let pause = match sweeper.sweep_once().await {
            Ok(true) => {
                failures = 0;
                continue;
            }
            Ok(false) => return,
            Err(err) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%err, "what waits for destinations that are gone cannot be removed");
                backoff::random_pause(PAUSE, failures)
            }
        };
        signal.run_until(ShutdownPhase::Graceful, sleep(pause)).await;
    }
}

/// Whether the store has events that may be left from destinations that are gone.
pub(super) fn has_events(view: &View<'_>) -> StoreResult<bool> {
    Ok(view.next_waiting_destination("")?.is_some() || !view.stored_events("", 1)?.is_empty())
}

struct Sweeper {
    store: Arc<Store>,
    /// The stored event that was looked at last; none when all were.
    last_event: Option<String>,
}

impl Sweeper {
    /// False when nothing is left to do.
    async fn sweep_once(&mut self) -> StoreResult<bool> {
        if let Some((id, event_ids)) = self.store.read(left_behind).await? {
            let remove = move |change: &Transaction<'_>| change.remove_left(&id, &event_ids);
            self.store.write(remove).await?;
            // Their events may wait for nobody now, wherever they are.
            self.last_event = Some(String::new());
            return Ok(true);
        }
        let Some(last) = self.last_event.take() else { return Ok(false) };
        let after = last.clone();
        // Tried again where it stopped.
        self.last_event = Some(last);
        let looked_at = self.store.read(move |view| view.stored_events(&after, STEP)).await?;
        let last = looked_at.last().map(|event| event.id.clone());
        let unused: Vec<_> =
            looked_at.into_iter().filter(|event| !event.is_awaited).map(|event| event.id).collect();
        if !unused.is_empty() {
            self.store.write(move |change| change.remove_unused_events(&unused)).await?;
        }
        self.last_event = last;
        Ok(self.last_event.is_some())
    }
}

/// A destination that is gone for which something waits, and some of what does.
fn left_behind(view: &View<'_>) -> StoreResult<Option<(String, Vec<String>)>> {
    let mut last = String::new();
    while let Some(id) = view.next_waiting_destination(&last)? {
        if view.exists(&id)? {
            last = id;
            continue;
        }
        let waiting = view.oldest_waiting(&id, STEP)?.into_iter().map(|(event_id, _)| event_id);
        let earlier = view.earlier_waiting_events(&id, STEP)?.into_iter().map(|event| event.id);
        let event_ids = waiting.chain(earlier).collect();
        return Ok(Some((id, event_ids)));
    }
    Ok(None)
}
