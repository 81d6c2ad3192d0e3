//! Has events delivered for as long as there are destinations: one task for each, and none without.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use ginnel_api::id::{Ids, has_prefix, prefix};
use ginnel_api::remote::event_destinations::EventDestination;
use ginnel_api::{Origin, Timestamp};
use ginnel_base::logging::or_debug;
use ginnel_gateway::Gateway;
use ginnel_net::{Shutdown, ShutdownPhase, ShutdownSignal};
use ginnel_store::{Changes, Store, StoreResult};

use super::arrivals::ArrivalTable;
use super::delivery::{DeliveryTarget, EventSender};
use super::delivery_key;
use super::metrics::EventMetrics;
use super::options::EventOptions;
use super::outbox::OutboxWorker;
use super::payload::OutgoingEvent;
use super::recorder::EventRecorder;
use super::routing::EventRouting;
use super::sweep::{has_events, sweep_events};
use super::traffic::{self, MAX_QUEUED, TrafficQueues};
use crate::cluster::lease::EVENT_DELIVERY;
use crate::cluster::{Cluster, Leases};

/// How often a node of a cluster looks whether it is the one that delivers.
const LEASE_INTERVAL: Duration = Duration::from_secs(2);
/// How often a node that is alone looks whether all tasks run.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How long after a failure the database is read again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long a stop waits for what was delivered to be removed.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// What delivering events needs.
pub(crate) struct DispatchServices {
    pub store: Arc<Store>,
    pub gateway: Gateway,
    pub cluster: Option<Arc<Cluster>>,
    pub metrics: Arc<EventMetrics>,
    pub recorder: Arc<EventRecorder>,
    pub origin: Origin,
}

/// What all tasks share.
pub(super) struct DispatchState {
    pub store: Arc<Store>,
    pub sender: EventSender,
    pub options: EventOptions,
    pub metrics: Arc<EventMetrics>,
    /// Makes the identifiers of events that are not stored.
    pub ids: Ids,
    /// Counts up when destinations or subscriptions change.
    pub routing: watch::Sender<u64>,
    /// Who waits for events to be stored.
    pub arrivals: ArrivalTable,
    pub shutdown: Shutdown,
    /// Whether it is this node that delivers what is stored.
    pub leases: Leases,
    recorder: Arc<EventRecorder>,
    origin: Origin,
    runtime: Handle,
    /// Whether the task runs that looks after all others.
    is_supervised: Mutex<bool>,
}

/// Has events delivered until it is dropped.
pub(crate) struct EventDispatcher(Arc<DispatchState>);

impl EventDispatcher {
    /// Begins, if there is a destination; else when there is one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn start(services: DispatchServices, options: EventOptions) -> StoreResult<Self> {
        let DispatchServices { store, gateway, cluster, metrics, recorder, origin } = services;
        let (folder, timeout) = (options.folder.clone(), options.timeout);
        let reach = options.reach();
        let state = Arc::new(DispatchState {
            sender: EventSender { gateway, folder, timeout, reach },
            options,
            metrics,
            ids: Ids::from_origin(origin.derive_part(5)),
            routing: watch::Sender::default(),
            arrivals: ArrivalTable::default(),
            shutdown: Shutdown::default(),
            leases: Leases::from_cluster(cluster),
            recorder,
            origin,
            runtime: Handle::current(),
            is_supervised: Mutex::new(false),
            store,
        });
        let follower = Arc::downgrade(&state);
        state.store.watch_changes(move |changes| {
            if let Some(state) = follower.upgrade() {
                state.handle_changes(changes);
            }
        });
        let read = state.store.read(|view| -> StoreResult<_> {
            let has_destination = !view.document_page::<EventDestination>(None, 1)?.is_empty();
            Ok(has_destination || has_events(view)?)
        });
        if read.await? {
            state.ensure_supervisor();
        }
        Ok(Self(state))
    }

    /// Ends all tasks, and waits for a moment until they have removed what is delivered.
    pub async fn stop(self) {
        self.0.shutdown.begin_phase(ShutdownPhase::Graceful);
        let finished = timeout(STOP_TIMEOUT, self.0.shutdown.wait_until_finished()).await;
        or_debug!(finished, "some events that were delivered may be delivered again");
    }
}

impl Drop for EventDispatcher {
    fn drop(&mut self) {
        self.0.shutdown.begin_phase(ShutdownPhase::Forced);
    }
}

impl DispatchState {
    /// How old what happened at `at` is, which is in seconds since the Unix epoch.
    pub fn age_since(&self, at: i64) -> Duration {
        let now = self.origin.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_secs(u64::try_from(at).unwrap_or(0)))
    }

    /// Returns the time by the clock of the store, in seconds since the Unix epoch.
    pub fn unix_second(&self) -> i64 {
        let now = self.origin.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
    }

    /// Returns the time by which replaced signing secrets end: during a pause after a leap of the clock, none does.
    pub fn secret_second(&self) -> i64 {
        match self.store.age_clock().remaining_pause() {
            None => self.unix_second(),
            Some(_) => i64::MIN,
        }
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_system_time(self.origin.now())
    }

    fn handle_changes(self: &Arc<Self>, changes: &Changes) {
        let is_routing = |id: &str| {
            let kinds = [prefix::EVENT_DESTINATION, prefix::EVENT_SUBSCRIPTION];
            kinds.iter().any(|kind| has_prefix(id, kind))
        };
        if changes.filter_ids(is_routing).is_some() {
            self.recorder.forget_subscriptions();
            self.routing.send_modify(|version| *version += 1);
            self.ensure_supervisor();
        }
        self.arrivals.wake_changed(changes);
    }

    /// Starts the task that looks after all others, unless it runs.
    fn ensure_supervisor(self: &Arc<Self>) {
        let mut is_supervised = self.is_supervised();
        if !*is_supervised && self.shutdown.phase() == ShutdownPhase::Running {
            *is_supervised = true;
            let signal = self.shutdown.signal();
            self.runtime.spawn(EventSupervisor::new(self.clone()).run(signal));
        }
    }

    fn is_supervised(&self) -> MutexGuard<'_, bool> {
        self.is_supervised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a task when it is dropped.
struct OwnedTask {
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl OwnedTask {
    /// A task that ends with the service as well.
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        parent: &Shutdown,
        task: impl FnOnce(ShutdownSignal) -> F,
    ) -> Self {
        let shutdown = parent.child();
        let task = ginnel_base::tasks::spawn(task(shutdown.signal()));
        Self { shutdown, task }
    }

    /// Ends it at once, also within an attempt.
    fn force_stop(&self) {
        self.shutdown.begin_phase(ShutdownPhase::Forced);
    }

    /// Whether it has ended by itself, as one does whose node does not deliver any more.
    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.shutdown.begin_phase(ShutdownPhase::Graceful);
    }
}

/// Has as many tasks as there are destinations.
struct EventSupervisor {
    state: Arc<DispatchState>,
    /// What delivers stored events, by the destination; empty where another node does.
    outboxes: HashMap<String, OwnedTask>,
    /// What delivers events of traffic, by the destination.
    traffic: HashMap<String, TrafficSender>,
    queues: Arc<ArcSwap<TrafficQueues>>,
    /// Hands out what the gateway tells; none where nobody wants it.
    distributor: Option<OwnedTask>,
    /// Whether the gateway knows deliveries of events.
    has_key: bool,
    /// Removes what destinations have left behind that are gone.
    sweep: Option<OwnedTask>,
    /// The destinations that there are, and those that have gone since a sweep began.
    known: BTreeSet<String>,
}

impl Drop for EventSupervisor {
    fn drop(&mut self) {
        // After a panic, the next change of a destination starts another.
        if std::thread::panicking() {
            *self.state.is_supervised() = false;
        }
    }
}

/// Delivers events of traffic to one destination.
struct TrafficSender {
    target: DeliveryTarget,
    queue: mpsc::Sender<OutgoingEvent>,
    _task: OwnedTask,
}

impl EventSupervisor {
    fn new(state: Arc<DispatchState>) -> Self {
        let (outboxes, traffic) = (HashMap::new(), HashMap::new());
        let queues = Arc::default();
        let (distributor, has_key, sweep, known) = (None, false, None, BTreeSet::new());
        Self { state, outboxes, traffic, queues, distributor, has_key, sweep, known }
    }

    /// Runs until there is no destination, or the service stops.
    async fn run(mut self, mut signal: ShutdownSignal) {
        let mut routing = self.state.routing.subscribe();
        loop {
            let version = *routing.borrow_and_update();
            let pause = match self.arrange_tasks().await {
                Ok(true) if self.is_sweeping() => Some(RETRY_PAUSE),
                Ok(true) => None,
                Ok(false) if self.try_end(version) => return,
                Ok(false) => continue,
                Err(err) => {
                    tracing::warn!(%err, "cannot look for event destinations");
                    Some(RETRY_PAUSE)
                }
            };
            let interval =
                self.state.leases.own_holder().map_or(CHECK_INTERVAL, |_| LEASE_INTERVAL);
            let waiting = async {
                tokio::select! {
                    () = sleep(pause.unwrap_or(interval)) => {}
                    _ = routing.changed() => {}
                }
            };
            if signal.run_until(ShutdownPhase::Graceful, waiting).await.is_none() {
                return;
            }
        }
    }

    /// Whether this may end: nothing has changed since it was found that there is no destination.
    fn try_end(&self, version: u64) -> bool {
        let mut is_supervised = self.state.is_supervised();
        let is_unchanged = *self.state.routing.borrow() == version;
        if is_unchanged {
            *is_supervised = false;
        }
        is_unchanged
    }

    /// Starts and ends tasks as the database says; false where there is no destination, and none has left
    /// anything behind.
    async fn arrange_tasks(&mut self) -> StoreResult<bool> {
        let state = self.state.clone();
        let routing = state.store.read(EventRouting::from_view).await?;
        let delivers = match routing.targets.is_empty() {
            true => true,
            false => state.leases.take_lease(&state.store, EVENT_DELIVERY).await?,
        };
        if !self.has_key && !routing.targets.is_empty() {
            let key = delivery_key::load_or_create(&self.state.store).await?;
            self.state.sender.gateway.set_delivery_key(&key);
            self.has_key = true;
        }
        self.arrange_outboxes(&routing.targets, delivers);
        self.arrange_traffic(&routing);
        if delivers {
            self.arrange_sweep(&routing.targets);
        }
        Ok(!routing.targets.is_empty() || self.is_sweeping())
    }

    /// Sweeps once at first, and after destinations have gone.
    fn arrange_sweep(&mut self, targets: &BTreeMap<String, DeliveryTarget>) {
        self.known.extend(targets.keys().cloned());
        let is_due = self.sweep.is_none() || self.known.len() > targets.len();
        if is_due && !self.is_sweeping() {
            self.known = targets.keys().cloned().collect();
            let store = self.state.store.clone();
            let start = |signal| sweep_events(store, signal);
            self.sweep = Some(OwnedTask::spawn(&self.state.shutdown, start));
        }
    }

    fn is_sweeping(&self) -> bool {
        self.sweep.as_ref().is_some_and(|task| !task.has_ended())
    }

    fn arrange_outboxes(&mut self, targets: &BTreeMap<String, DeliveryTarget>, delivers: bool) {
        end_outboxes(&mut self.outboxes, |id| targets.contains_key(id), delivers);
        for id in targets.keys().filter(|_| delivers) {
            let state = &self.state;
            self.outboxes.entry(id.clone()).or_insert_with(|| {
                let start = |signal| OutboxWorker::new(state, id, signal).run();
                OwnedTask::spawn(&state.shutdown, start)
            });
        }
    }

    fn arrange_traffic(&mut self, routing: &EventRouting) {
        let wants = |id: &String| routing.traffic.values().any(|receivers| receivers.contains(id));
        let targets = &routing.targets;
        self.traffic.retain(|id, sender| wants(id) && targets.get(id) == Some(&sender.target));
        for (id, target) in targets.iter().filter(|(id, _)| wants(id)) {
            let (state, target) = (&self.state, target.clone());
            self.traffic.entry(id.clone()).or_insert_with(|| {
                let (queue, events) = mpsc::channel(MAX_QUEUED);
                let (shared, to) = (state.clone(), target.clone());
                let start = |signal| traffic::send_all(shared, to, events, signal);
                let task = OwnedTask::spawn(&state.shutdown, start);
                TrafficSender { target, queue, _task: task }
            });
        }
        let queues_of = |ids: &Vec<String>| {
            ids.iter().filter_map(|id| Some(self.traffic.get(id)?.queue.clone())).collect()
        };
        let queues = routing.traffic.iter().map(|(name, ids)| (*name, queues_of(ids)));
        self.queues.store(Arc::new(queues.collect()));
        if self.traffic.is_empty() {
            self.distributor = None;
        } else if self.distributor.is_none() {
            let (state, queues) = (self.state.clone(), self.queues.clone());
            let start = |signal| traffic::distribute_events(state, queues, signal);
            self.distributor = Some(OwnedTask::spawn(&self.state.shutdown, start));
        }
    }
}

/// Ends what delivers to destinations that are gone, and everything where another node delivers.
fn end_outboxes(
    outboxes: &mut HashMap<String, OwnedTask>,
    is_there: impl Fn(&String) -> bool,
    delivers: bool,
) {
    if !delivers {
        // The other node sends the same by now, and what comes after it.
        outboxes.values().for_each(OwnedTask::force_stop);
    }
    outboxes.retain(|id, task| delivers && is_there(id) && !task.has_ended());
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// Whether an attempt is cut off that never comes to an end.
    async fn cuts_off(is_there: bool, delivers: bool) -> bool {
        let (attempt, mut cut_off) = mpsc::channel::<()>(1);
        let task = OwnedTask::spawn(&Shutdown::default(), |mut signal| async move {
            let _attempt = attempt;
            signal.run_until(ShutdownPhase::Forced, pending::<()>()).await;
        });
        let mut outboxes = HashMap::from([("ed_1".to_owned(), task)]);

        end_outboxes(&mut outboxes, |_| is_there, delivers);

        timeout(Duration::from_millis(100), cut_off.recv()).await.is_ok()
    }

    #[tokio::test]
    async fn an_attempt_goes_on_to_its_end_unless_another_node_makes_it() {
        assert!(!cuts_off(true, true).await);
        assert!(!cuts_off(false, true).await, "the destination is gone");
        assert!(cuts_off(true, false).await);
    }
}
