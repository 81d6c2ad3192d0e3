//! Delivers to one destination what the store holds for it, in the order of the commits.
//!
//! What fails is tried again, and what comes after it waits: only a destination's own events do. Before each
//! attempt it is looked at what the database says by then, unless nothing has changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::arrivals::Arrivals;
use super::backoff;
use super::delivery::DeliveryError;
use super::dispatcher::DispatchState;
use super::lease;
use super::metrics::GiveUpReason;
use super::payload::OutgoingEvent;
use super::routing::WaitingEvents;
use crate::net::{ShutdownPhase, ShutdownSignal};
use crate::service::store::{OutboxRow, StoreError, Transaction};

/// How many events are read at once.
const PAGE: usize = 100;
/// How many are delivered before they are removed: as many may be delivered again after a kill.
const REMOVED_AT_ONCE: usize = 20;
/// How often it is looked whether too many wait, while events are sent at most.
const BUSY_TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// The same while a destination is not tried.
const TRIM_INTERVAL: Duration = Duration::from_secs(5);
/// How long after its first failure the database is used again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Delivers what the store holds for one destination.
pub(super) struct OutboxWorker {
    state: Arc<DispatchState>,
    destination_id: String,
    signal: ShutdownSignal,
    routing: watch::Receiver<u64>,
    arrivals: Arrivals,
    /// The event that failed last, and how often.
    failed: Option<(String, u32)>,
    /// What is delivered or given up, and not yet removed.
    finished: Vec<String>,
    /// When it is looked again whether too many wait.
    next_trim: Instant,
}

/// How delivering a page ended.
enum PageEnd {
    /// There may be more.
    Again,
    /// Nothing waits.
    Empty,
    /// An attempt failed, and so many have failed before it.
    Failed(u32),
    /// The destination is not this worker's any more.
    Gone,
}

impl OutboxWorker {
    pub(super) fn new(
        state: &Arc<DispatchState>,
        destination_id: &str,
        signal: ShutdownSignal,
    ) -> Self {
        Self {
            state: state.clone(),
            destination_id: destination_id.to_owned(),
            signal,
            routing: state.routing.subscribe(),
            arrivals: state.arrivals.of(destination_id),
            failed: None,
            finished: Vec::new(),
            next_trim: Instant::now(),
        }
    }

    /// Delivers until the destination is gone, another node does, or the service stops.
    pub(super) async fn run(mut self) {
        self.report_start().await;
        let mut store_failures: u32 = 0;
        loop {
            self.routing.mark_unchanged();
            let end = self.deliver_and_remove().await;
            store_failures = end.as_ref().map_or(store_failures.saturating_add(1), |_| 0);
            let goes_on = match end {
                Ok(PageEnd::Again) => self.signal_phase() == ShutdownPhase::Running,
                Ok(PageEnd::Empty) => self.wait_for_events().await,
                Ok(PageEnd::Failed(failures)) => self.wait_after(failures).await,
                Ok(PageEnd::Gone) => false,
                Err(err) => {
                    let destination = self.destination_id.as_str();
                    tracing::warn!(%err, destination, "events that wait cannot be read or removed");
                    self.pause(backoff::pause(STORE_PAUSE, store_failures)).await
                }
            };
            if !goes_on {
                break;
            }
        }
        self.state.metrics.forget(&self.destination_id);
    }

    /// Says what waits from before: after a backup was restored, it may have been delivered already.
    async fn report_start(&self) {
        let id = self.destination_id.clone();
        let counted = self.state.store.read(move |view| view.count_deliveries(&id)).await;
        let destination = self.destination_id.as_str();
        match counted {
            Ok(0) => {}
            Ok(waiting) => tracing::info!(
                destination,
                waiting,
                "events wait from before; if the database is a backup, some were delivered already"
            ),
            Err(err) => tracing::warn!(%err, destination, "events that wait cannot be counted"),
        }
    }

    fn signal_phase(&self) -> ShutdownPhase {
        self.state.shutdown.phase()
    }

    /// Delivers a page and removes it. What is delivered and could not be removed goes first: while nothing
    /// can be removed nothing is sent, since it would be sent again and again.
    async fn deliver_and_remove(&mut self) -> Result<PageEnd, StoreError> {
        if !self.remove_finished().await? {
            return Ok(PageEnd::Gone);
        }
        let end = self.deliver_page().await;
        let is_held = self.remove_finished().await?;
        if is_held { end } else { Ok(PageEnd::Gone) }
    }

    async fn deliver_page(&mut self) -> Result<PageEnd, StoreError> {
        if self.next_trim <= Instant::now() {
            self.trim().await?;
        }
        let (id, own) = (self.destination_id.clone(), self.state.owner());
        let read =
            self.state.store.read(move |view| WaitingEvents::read(view, &id, own.as_ref(), PAGE));
        let Some(waiting) = read.await? else { return Ok(PageEnd::Gone) };
        if waiting.deliveries.is_empty() {
            self.state.metrics.set_waiting(&self.destination_id, 0);
            return Ok(PageEnd::Empty);
        }
        // One that fails must not take others with it.
        let batch = if self.failed.is_some() { 1 } else { waiting.target.batch() };
        let mut outgoing = Vec::with_capacity(batch);
        let mut deliveries = waiting.deliveries.iter().peekable();
        while let Some(delivery) = deliveries.next() {
            if let Some(event) = self.outgoing(&waiting, delivery) {
                outgoing.push(event);
            } else {
                self.finished.push(delivery.event_id.clone());
            }
            let is_full = outgoing.len() >= batch || deliveries.peek().is_none();
            if !is_full || outgoing.is_empty() {
                continue;
            }
            if let Some(end) = self.attempt(&waiting, &std::mem::take(&mut outgoing)).await {
                return Ok(end);
            }
            if self.finished.len() >= REMOVED_AT_ONCE && !self.remove_finished().await? {
                return Ok(PageEnd::Gone);
            }
            if self.routing.has_changed().unwrap_or(true) {
                return Ok(PageEnd::Again);
            }
        }
        Ok(PageEnd::Again)
    }

    /// An event as it is sent; none where nobody wants it any more, or it is too old.
    fn outgoing(&self, waiting: &WaitingEvents, delivery: &OutboxRow) -> Option<OutgoingEvent> {
        let event_id = delivery.event_id.as_str();
        let event = match OutgoingEvent::read(delivery.body.clone()) {
            Ok(event) => event,
            Err(err) => {
                tracing::error!(%err, event_id, "a stored event is unusable");
                self.state.metrics.gave_up(GiveUpReason::Unusable, 1);
                return None;
            }
        };
        if !waiting.is_wanted(delivery, &event.header.event_type) {
            self.state.metrics.gave_up(GiveUpReason::Unsubscribed, 1);
            return None;
        }
        if self.state.age(delivery.at) > self.state.options.max_age {
            self.give_up(GiveUpReason::Expired, &[event]);
            return None;
        }
        Some(event)
    }

    /// Sends events once; gives how the page ends if it does.
    async fn attempt(
        &mut self,
        waiting: &WaitingEvents,
        events: &[OutgoingEvent],
    ) -> Option<PageEnd> {
        let (target, state) = (&waiting.target, self.state.clone());
        let sending = state.sender.send(target, events);
        let Some(sent) = self.signal.run_until(ShutdownPhase::Graceful, sending).await else {
            return Some(PageEnd::Gone);
        };
        let Err(error) = sent else {
            self.failed = None;
            self.finish(events);
            state.metrics.delivered(target.kind(), events.len());
            return None;
        };
        state.metrics.attempt_failed(target.kind());
        let failures = self.note_failure(events, &error);
        if error.max_attempts().is_some_and(|attempts| failures >= attempts) {
            self.failed = None;
            self.give_up(GiveUpReason::Refused, events);
            self.finish(events);
            return None;
        }
        Some(PageEnd::Failed(failures))
    }

    fn finish(&mut self, events: &[OutgoingEvent]) {
        self.finished.extend(events.iter().map(|event| event.header.event_id.clone()));
    }

    /// Counts a failure of the oldest event; gives how many there were.
    fn note_failure(&mut self, events: &[OutgoingEvent], error: &DeliveryError) -> u32 {
        let event = events.first().map(|event| event.header.event_id.clone()).unwrap_or_default();
        let before = self.failed.take().filter(|(failed, _)| *failed == event);
        let failures = before.map_or(0, |(_, failures)| failures).saturating_add(1);
        let destination = self.destination_id.as_str();
        if failures == 1 {
            tracing::warn!(destination, event, err = %error, "an event could not be delivered");
        } else {
            tracing::debug!(destination, event, failures, err = %error, "an event failed again");
        }
        self.failed = Some((event, failures));
        failures
    }

    fn give_up(&self, reason: GiveUpReason, events: &[OutgoingEvent]) {
        self.state.metrics.gave_up(reason, events.len() as u64);
        for event in events {
            tracing::warn!(
                destination = self.destination_id,
                event = event.header.event_id,
                kind = event.header.event_type,
                reason = reason.name(),
                "an event is given up"
            );
        }
    }

    /// Gives up the oldest events where more wait than may, unless another node delivers by now.
    async fn trim(&mut self) -> Result<(), StoreError> {
        self.next_trim = Instant::now() + BUSY_TRIM_INTERVAL;
        loop {
            let (id, kept) = (self.destination_id.clone(), self.state.options.max_waiting);
            let own = self.state.owner();
            let read = self.state.store.read(move |view| -> Result<_, StoreError> {
                if !lease::is_held(view, own.as_ref())? {
                    return Ok(None);
                }
                let surplus = view.surplus_deliveries(&id, kept, PAGE)?;
                Ok(Some((surplus, view.count_deliveries(&id)?)))
            });
            let Some((surplus, count)) = read.await? else { return Ok(()) };
            let waiting = u64::try_from(count).unwrap_or(0);
            self.state.metrics.set_waiting(&self.destination_id, waiting);
            if surplus.is_empty() {
                return Ok(());
            }
            let (destination, given_up) = (self.destination_id.as_str(), surplus.len());
            tracing::warn!(destination, given_up, "too many events wait; the oldest are given up");
            self.state.metrics.gave_up(GiveUpReason::Overflow, given_up as u64);
            if !self.remove(surplus).await? {
                return Ok(());
            }
        }
    }

    /// Removes what is finished; false where another node delivers by now.
    async fn remove_finished(&mut self) -> Result<bool, StoreError> {
        if self.finished.is_empty() {
            return Ok(true);
        }
        let is_held = self.remove(self.finished.clone()).await?;
        self.finished.clear();
        Ok(is_held)
    }

    /// Removes events; false where another node delivers by now.
    async fn remove(&self, event_ids: Vec<String>) -> Result<bool, StoreError> {
        let (id, own) = (self.destination_id.clone(), self.state.owner());
        let remove = move |change: &Transaction<'_>| -> Result<bool, StoreError> {
            change.remove_deliveries(&id, &event_ids)?;
            lease::is_held(change, own.as_ref())
        };
        self.state.store.write(remove).await
    }

    /// Waits until there may be something to deliver; false when the service stops.
    async fn wait_for_events(&mut self) -> bool {
        let Self { signal, routing, arrivals, .. } = self;
        let change = async {
            // The state that this worker keeps has the other ends.
            tokio::select! {
                _ = routing.changed() => {}
                () = arrivals.next() => {}
            }
        };
        signal.run_until(ShutdownPhase::Graceful, change).await.is_some()
    }

    /// Waits after failures, until the destination has changed at most; false when the service stops.
    async fn wait_after(&mut self, failures: u32) -> bool {
        let until = Instant::now() + backoff::pause(self.state.options.retry_after, failures);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (signal, routing) = (&mut self.signal, &mut self.routing);
            let waiting = async {
                tokio::select! {
                    () = sleep(left.min(TRIM_INTERVAL)) => false,
                    _ = routing.changed() => true,
                }
            };
            match signal.run_until(ShutdownPhase::Graceful, waiting).await {
                None => return false,
                Some(has_changed) if has_changed || left <= TRIM_INTERVAL => return true,
                Some(_) => {}
            }
            if let Err(err) = self.trim().await {
                tracing::debug!(%err, "what waits cannot be counted");
            }
        }
    }

    async fn pause(&mut self, time: Duration) -> bool {
        self.signal.run_until(ShutdownPhase::Graceful, sleep(time)).await.is_some()
    }
}
