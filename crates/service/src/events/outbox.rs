//! Delivers to one destination what the store holds for it, in the order of the commits.
//!
//! What fails is tried again, and what comes after it waits: only a destination's own events do. Before each
//! attempt it is looked at what the database says by then, unless nothing has changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use ginnel_net::{ShutdownPhase, ShutdownSignal};
use ginnel_store::{EventRow, StoreResult, Transaction, View, WaitingTotals};

use super::arrivals::Arrivals;
use super::backoff;
use super::delivery::DeliveryError;
use super::dispatcher::DispatchState;
use super::metrics::{FailedAttempt, GiveUpReason};
use super::payload::OutgoingEvent;
use super::routing::WaitingEvents;
use crate::cluster::lease::{self, EVENT_DELIVERY};

/// How many events are read at once.
const PAGE: usize = 100;
/// How many are delivered before they are removed: as many may be delivered again after a kill.
const REMOVED_AT_ONCE: usize = 20;
/// How many are given up at once where too much waits.
const GIVEN_UP_AT_ONCE: usize = 500;
/// How often it is looked whether too much waits, while events are sent at most.
const BUSY_TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// How many times as long as such a look takes it is until the next.
const TRIM_SHARE: u32 = 20;
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
    /// When it is looked again whether too much waits.
    next_trim: Instant,
    /// False while the clock of the store has leapt, so that no event is given up for its age.
    expires: bool,
}

/// How delivering a page ended.
enum PageEnd {
    /// There may be more.
    Again,
    /// Nothing waits.
    Empty,
    /// An attempt failed.
    Failed(AttemptFailure),
    /// Nothing is left to do here: the destination is gone, another node delivers, or the service stops.
    Stop,
}

/// How it went when an event could not be delivered.
struct AttemptFailure {
    /// How many attempts have failed one after the other.
    count: u32,
    /// How long the receiver asks to be left alone.
    retry_after: Option<Duration>,
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
            arrivals: state.arrivals.for_destination(destination_id),
            failed: None,
            finished: Vec::new(),
            next_trim: Instant::now(),
            expires: true,
        }
    }

    /// Delivers until the destination is gone, another node does, or the service stops.
    pub(super) async fn run(mut self) {
        let mut store_failures: u32 = 0;
        let mut is_started = false;
        loop {
            self.routing.mark_unchanged();
            let end = match is_started {
                true => self.deliver_and_remove().await,
                false => self.take_over_waiting().await.map(|()| PageEnd::Again),
            };
            is_started |= end.is_ok();
            store_failures = end.as_ref().map_or(store_failures.saturating_add(1), |_| 0);
            let goes_on = match end {
                Ok(PageEnd::Again) => self.is_running(),
                Ok(PageEnd::Empty) => self.wait_for_events().await,
                Ok(PageEnd::Failed(failure)) => self.wait_after(failure).await,
                Ok(PageEnd::Stop) => false,
                Err(err) => {
                    let destination = self.destination_id.as_str();
                    tracing::warn!(%err, destination, "events that wait cannot be read or removed");
                    self.sleep_unless_stopped(backoff::random_pause(STORE_PAUSE, store_failures))
                        .await
                }
            };
            if !goes_on {
                break;
            }
        }
        self.state.metrics.forget_destination(&self.destination_id);
    }

    /// Takes over what waits from before, and says so: after a backup was restored, it may have been delivered
    /// already.
    async fn take_over_waiting(&self) -> StoreResult<()> {
        self.move_earlier_events().await?;
        let id = self.destination_id.clone();
        let totals = self.state.store.read(move |view| view.waiting_totals(&id)).await?;
        if totals.count > 0 {
            tracing::info!(
                destination = self.destination_id,
                waiting = totals.count,
                "events wait from before; if the database is a backup, some were delivered already"
            );
        }
        Ok(())
    }

    /// Moves what was stored in the way of schema 3, which nodes of an older version go on doing; gives
    /// whether there was any.
    async fn move_earlier_events(&self) -> StoreResult<bool> {
        let mut has_moved = false;
        while self.is_running() {
            let id = self.destination_id.clone();
            let read = self.state.store.read(move |view| view.earlier_waiting_events(&id, 1));
            if read.await?.is_empty() {
                break;
            }
            let (id, own) = (self.destination_id.clone(), self.state.leases.own_holder());
            let move_page = move |change: &Transaction<'_>| -> StoreResult<bool> {
                // Meanwhile another node may deliver, or an admin may have deleted the destination.
                if !lease::is_held(change, EVENT_DELIVERY, own.as_ref())? || !change.exists(&id)? {
                    return Ok(false);
                }
                let earlier = change.earlier_waiting_events(&id, PAGE)?;
                change.move_earlier_events(&id, &earlier)?;
                Ok(!earlier.is_empty())
            };
            if !self.state.store.write(move_page).await? {
                break;
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn is_running(&self) -> bool {
        self.signal.phase() == ShutdownPhase::Running
    }

    /// Delivers a page and removes it. What is delivered and could not be removed goes first: while nothing
    /// can be removed nothing is sent, since it would be sent again and again.
    async fn deliver_and_remove(&mut self) -> StoreResult<PageEnd> {
        if !self.remove_finished().await? {
            return Ok(PageEnd::Stop);
        }
        let end = self.deliver_page().await;
        let is_held = self.remove_finished().await?;
        if is_held { end } else { Ok(PageEnd::Stop) }
    }

    async fn deliver_page(&mut self) -> StoreResult<PageEnd> {
        if self.next_trim <= Instant::now() {
            self.trim_waiting().await?;
        }
        self.expires = self.state.store.age_time().await?.is_some();
        let (id, own) = (self.destination_id.clone(), self.state.leases.own_holder());
        let read = self
            .state
            .store
            .read(move |view| WaitingEvents::read_oldest(view, &id, own.as_ref(), PAGE));
        let Some(waiting) = read.await? else { return Ok(PageEnd::Stop) };
        if waiting.events.is_empty() {
            if self.move_earlier_events().await? {
                return Ok(PageEnd::Again);
            }
            self.state.metrics.set_waiting(&self.destination_id, WaitingTotals::default());
            return Ok(PageEnd::Empty);
        }
        // One that fails must not take others with it.
        let batch = if self.failed.is_some() { 1 } else { waiting.target.max_batch_events() };
        let mut outgoing = Vec::with_capacity(batch);
        let mut events = waiting.events.iter().peekable();
        while let Some(event) = events.next() {
            match self.to_outgoing(&waiting, event) {
                Some(event) => outgoing.push(event),
                None => self.finished.push(event.id.clone()),
            }
            let is_full = outgoing.len() >= batch || events.peek().is_none();
            if !is_full || outgoing.is_empty() {
                continue;
            }
            if let Some(end) = self.attempt_delivery(&waiting, &std::mem::take(&mut outgoing)).await
            {
                return Ok(end);
            }
            if self.finished.len() >= REMOVED_AT_ONCE && !self.remove_finished().await? {
                return Ok(PageEnd::Stop);
            }
            if !self.is_running() || self.routing.has_changed().unwrap_or(true) {
                return Ok(PageEnd::Again);
            }
        }
        Ok(PageEnd::Again)
    }

    /// An event as it is sent; none where nobody wants it any more, or it is too old.
    fn to_outgoing(&self, waiting: &WaitingEvents, row: &EventRow) -> Option<OutgoingEvent> {
        let event_id = row.id.as_str();
        let event = match OutgoingEvent::from_body(row.body.clone()) {
            Ok(event) => event,
            Err(err) => {
                tracing::error!(%err, event_id, "a stored event is unusable");
                self.state.metrics.record_given_up(GiveUpReason::Unusable, 1);
                return None;
            }
        };
        if !waiting.is_wanted(&event.header.event_type) {
            self.state.metrics.record_given_up(GiveUpReason::Unsubscribed, 1);
            return None;
        }
        if self.expires && self.state.age_since(row.at) > self.state.options.max_age {
            self.give_up(GiveUpReason::Expired, &[event]);
            return None;
        }
        Some(event)
    }

    /// Sends events once; gives how the page ends if it does.
    async fn attempt_delivery(
        &mut self,
        waiting: &WaitingEvents,
        events: &[OutgoingEvent],
    ) -> Option<PageEnd> {
        let (target, state) = (&waiting.target, self.state.clone());
        let sending = state.sender.send_events(target, events, state.secret_second());
        // What is cut off may have been taken, and would come again from whoever delivers next.
        let Some(sent) = self.signal.run_until(ShutdownPhase::Forced, sending).await else {
            return Some(PageEnd::Stop);
        };
        let error = match sent {
            Ok(sent) => {
                self.failed = None;
                self.mark_finished(events);
                state.metrics.clear_last_failure(&self.destination_id);
                state.metrics.record_sent(target.kind(), &sent);
                return None;
            }
            Err(error) => error,
        };
        state.metrics.record_failed_attempt(target.kind());
        let failures = self.record_failure(events, &error);
        if error.max_attempts().is_some_and(|attempts| failures >= attempts) {
            self.failed = None;
            self.give_up(GiveUpReason::Refused, events);
            self.mark_finished(events);
            return None;
        }
        Some(PageEnd::Failed(AttemptFailure { count: failures, retry_after: error.retry_after() }))
    }

    fn mark_finished(&mut self, events: &[OutgoingEvent]) {
        self.finished.extend(events.iter().map(|event| event.header.event_id.clone()));
    }

    /// Counts a failure of the oldest event; gives how many there were.
    fn record_failure(&mut self, events: &[OutgoingEvent], error: &DeliveryError) -> u32 {
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
        let (at, problem) = (self.state.now(), error.to_string());
        let failure = FailedAttempt { at, attempts: failures, problem };
        self.state.metrics.set_last_failure(destination, failure);
        failures
    }

    fn give_up(&self, reason: GiveUpReason, events: &[OutgoingEvent]) {
        self.state.metrics.record_given_up(reason, events.len() as u64);
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

    /// Gives up the oldest events where more waits than may, in number or in bytes, unless another node
    /// delivers by now.
    async fn trim_waiting(&mut self) -> StoreResult<()> {
        let began = Instant::now();
        let trimmed = self.trim_now().await;
        let pause = began.elapsed().saturating_mul(TRIM_SHARE).max(BUSY_TRIM_INTERVAL);
        self.next_trim = Instant::now() + pause;
        trimmed
    }

    async fn trim_now(&self) -> StoreResult<()> {
        // They count as well, and have their place in the order.
        self.move_earlier_events().await?;
        let (id, own) = (self.destination_id.clone(), self.state.leases.own_holder());
        let read = self.state.store.read(move |view| -> StoreResult<_> {
            let is_held = lease::is_held(view, EVENT_DELIVERY, own.as_ref())?;
            if is_held { view.waiting_totals(&id).map(Some) } else { Ok(None) }
        });
        let Some(mut totals) = read.await? else { return Ok(()) };
        loop {
            self.state.metrics.set_waiting(&self.destination_id, totals);
            let (id, limits) = (self.destination_id.clone(), self.state.options.waiting_limits());
            let read = self.state.store.read(move |view| find_surplus(view, &id, totals, limits));
            let (surplus, left) = read.await?;
            if surplus.is_empty() {
                return Ok(());
            }
            let (destination, given_up) = (self.destination_id.as_str(), surplus.len());
            if !self.remove_events(surplus).await? {
                return Ok(());
            }
            tracing::warn!(destination, given_up, "too much waits; the oldest events are given up");
            self.state.metrics.record_given_up(GiveUpReason::Overflow, given_up as u64);
            if !self.is_running() {
                return Ok(());
            }
            totals = left;
        }
    }

    /// Removes what is finished; false where another node delivers by now.
    async fn remove_finished(&mut self) -> StoreResult<bool> {
        if self.finished.is_empty() {
            return Ok(true);
        }
        let is_held = self.remove_events(self.finished.clone()).await?;
        self.finished.clear();
        Ok(is_held)
    }

    /// Removes events; false where another node delivers by now.
    async fn remove_events(&self, event_ids: Vec<String>) -> StoreResult<bool> {
        let (id, own) = (self.destination_id.clone(), self.state.leases.own_holder());
        let remove = move |change: &Transaction<'_>| -> StoreResult<bool> {
            // First, so that it is fetched with what the removal reads.
            let is_held = lease::is_held(change, EVENT_DELIVERY, own.as_ref());
            change.remove_waiting(&id, &event_ids)?;
            is_held
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
    async fn wait_after(&mut self, failure: AttemptFailure) -> bool {
        let pause = backoff::random_pause(self.state.options.retry_after, failure.count);
        let until = Instant::now() + failure.retry_after.unwrap_or_default().max(pause);
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
            if let Err(err) = self.trim_waiting().await {
                tracing::debug!(%err, "what waits cannot be counted");
            }
        }
    }

    async fn sleep_unless_stopped(&mut self, time: Duration) -> bool {
        self.signal.run_until(ShutdownPhase::Graceful, sleep(time)).await.is_some()
    }
}

/// Some of the oldest events of a destination without which no more waits than may, and what waits then.
fn find_surplus(
    view: &View<'_>,
    destination_id: &str,
    mut totals: WaitingTotals,
    limits: WaitingTotals,
) -> StoreResult<(Vec<String>, WaitingTotals)> {
    let mut surplus = Vec::new();
    if totals.is_within(limits) {
        return Ok((surplus, totals));
    }
    for (event_id, bytes) in view.oldest_waiting(destination_id, GIVEN_UP_AT_ONCE)? {
        if totals.is_within(limits) {
            break;
        }
        totals.count = totals.count.saturating_sub(1);
        totals.bytes = totals.bytes.saturating_sub(bytes);
        surplus.push(event_id);
    }
    Ok((surplus, totals))
}
