//! What is decided on public traffic, told to Python.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;

use ginnel_gateway::{self as gateway, EventDelivery};

/// How long the interpreter is left alone before it looks for Ctrl-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How many events wait for Python.
const MAX_QUEUED_EVENTS: usize = 4096;

/// What is decided on public traffic, heard from another thread.
#[pyclass(frozen, module = "ginnel._native", name = "Events")]
pub(super) struct TrafficEvents {
    receiver: Mutex<Receiver<EventDelivery>>,
    notify: NotifyOnce,
}

/// Who is to be called when there is something to hear, or nothing any more.
#[derive(Clone, Default)]
struct NotifyOnce(Arc<Mutex<Option<Py<PyAny>>>>);

/// Rings at the end, however that comes.
struct NotifyOnDrop(NotifyOnce);

#[pymethods]
impl TrafficEvents {
    /// The next event as JSON, waiting for it at most so many seconds; None when none came.
    ///
    /// Raises `EOFError` when the service has stopped.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let limit = timeout.map(|it| Duration::try_from_secs_f64(it).unwrap_or_default());
        let deadline = limit.and_then(|it| Instant::now().checked_add(it));
        loop {
            let left = deadline
                .map_or(SIGNAL_CHECK_INTERVAL, |it| it.saturating_duration_since(Instant::now()));
            match py.detach(|| self.wait_for_event(left.min(SIGNAL_CHECK_INTERVAL))) {
                Ok(event) => return Ok(Some(event_json(&event))),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyEOFError::new_err("the service has stopped"));
                }
                Err(RecvTimeoutError::Timeout)
                    if deadline.is_some_and(|it| it <= Instant::now()) =>
                {
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// Has `notify` called once, from another thread, when something is there or the service stops.
    ///
    /// What is there already does not count.
    fn call_once(&self, notify: Py<PyAny>) {
        *lock_mutex(&self.notify.0) = Some(notify);
    }
}

impl TrafficEvents {
    /// Takes events out of the runtime, which may end before those who wait for them.
    pub(super) fn from_subscriber(
        mut events: gateway::EventSubscriber,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (sender, receiver) = std::sync::mpsc::sync_channel(MAX_QUEUED_EVENTS);
        let notify = NotifyOnce::default();
        let last = NotifyOnDrop(notify.clone());
        runtime.spawn(async move {
            // Dropped before it, so that whoever is called finds that there is nothing any more.
            let (last, sender) = (last, sender);
            let mut missed = 0;
            while let Some(event) = events.next().await {
                missed = match send_with_missed(&sender, event, missed) {
                    Some(missed) => missed,
                    None => return,
                };
                last.0.notify();
            }
        });
        Self { receiver: Mutex::new(receiver), notify }
    }

    fn wait_for_event(&self, limit: Duration) -> Result<EventDelivery, RecvTimeoutError> {
        lock_mutex(&self.receiver).recv_timeout(limit)
    }
}

impl NotifyOnce {
    fn notify(&self) {
        let Some(notify) = lock_mutex(&self.0).take() else { return };
        // An interpreter that is shutting down has nobody left to tell.
        Python::try_attach(|py| {
            if let Err(error) = notify.call0(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify();
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes an event on, and before it how many were missed; gives how many are missed now, or none
/// when nobody listens any more.
fn send_with_missed(
    to: &SyncSender<EventDelivery>,
    event: EventDelivery,
    missed: u64,
) -> Option<u64> {
    let events = match (missed, event) {
        (missed, EventDelivery::Missed(more)) => return Some(missed + more),
        (0, event) => vec![event],
        (missed, event) => vec![EventDelivery::Missed(missed), event],
    };
    let mut missed_now = missed;
    for one in events {
        let is_event = matches!(one, EventDelivery::Event(_));
        match to.try_send(one) {
            Ok(()) if is_event => {}
            Ok(()) => missed_now = 0,
            Err(TrySendError::Full(_)) => return Some(missed_now + 1),
            Err(TrySendError::Disconnected(_)) => return None,
        }
    }
    Some(missed_now)
}

fn event_json(event: &EventDelivery) -> String {
    match event {
        // An event holds nothing that JSON could not.
        EventDelivery::Event(event) => serde_json::to_string(event.as_ref()).unwrap_or_default(),
        EventDelivery::Missed(missed) => format!("{{\"missed\":{missed}}}"),
    }
}
