//! What is decided on public traffic, told to Python.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;

use crate::gateway::{self, EventDelivery};

/// How long the interpreter is left alone before it looks for Ctrl-C.
const STEP: Duration = Duration::from_millis(50);
/// How many events wait for Python.
const WAITING: usize = 4096;

/// What is decided on public traffic, heard from another thread.
#[pyclass(frozen, module = "ginnel._native")]
pub(super) struct Events {
    heard: Mutex<Receiver<EventDelivery>>,
    bell: Bell,
}

/// Who is to be called when there is something to hear, or nothing any more.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<Option<Py<PyAny>>>>);

/// Rings at the end, however that comes.
struct LastRing(Bell);

#[pymethods]
impl Events {
    /// The next event as JSON, waiting for it at most so many seconds; None when none came.
    ///
    /// Raises `EOFError` when the service has stopped.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let patience = timeout.map(|it| Duration::try_from_secs_f64(it).unwrap_or_default());
        let deadline = patience.and_then(|it| Instant::now().checked_add(it));
        loop {
            let left = deadline.map_or(STEP, |it| it.saturating_duration_since(Instant::now()));
            match py.detach(|| self.wait(left.min(STEP))) {
                Ok(heard) => return Ok(Some(json(&heard))),
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
        *lock(&self.bell.0) = Some(notify);
    }
}

impl Events {
    /// Takes events out of the runtime, which may end before those who wait for them.
    pub(super) fn take(
        mut events: gateway::EventSubscriber,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        let (sender, receiver) = std::sync::mpsc::sync_channel(WAITING);
        let bell = Bell::default();
        let last = LastRing(bell.clone());
        runtime.spawn(async move {
            // Dropped before it, so that whoever is called finds that there is nothing any more.
            let (last, sender) = (last, sender);
            let mut missed = 0;
            while let Some(heard) = events.next().await {
                missed = match pass_on(&sender, heard, missed) {
                    Some(missed) => missed,
                    None => return,
                };
                last.0.ring();
            }
        });
        Self { heard: Mutex::new(receiver), bell }
    }

    fn wait(&self, patience: Duration) -> Result<EventDelivery, RecvTimeoutError> {
        lock(&self.heard).recv_timeout(patience)
    }
}

impl Bell {
    fn ring(&self) {
        let Some(notify) = lock(&self.0).take() else { return };
        // An interpreter that is shutting down has nobody left to tell.
        Python::try_attach(|py| {
            if let Err(error) = notify.call0(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Drop for LastRing {
    fn drop(&mut self) {
        self.0.ring();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes an event on, and before it how many were missed; gives how many are missed now, or none
/// when nobody listens any more.
fn pass_on(to: &SyncSender<EventDelivery>, heard: EventDelivery, missed: u64) -> Option<u64> {
    let waiting = match (missed, heard) {
        (missed, EventDelivery::Missed(more)) => return Some(missed + more),
        (0, heard) => vec![heard],
        (missed, heard) => vec![EventDelivery::Missed(missed), heard],
    };
    let mut untold = missed;
    for one in waiting {
        let is_event = matches!(one, EventDelivery::Event(_));
        match to.try_send(one) {
            Ok(()) if is_event => {}
            Ok(()) => untold = 0,
            Err(TrySendError::Full(_)) => return Some(untold + 1),
            Err(TrySendError::Disconnected(_)) => return None,
        }
    }
    Some(untold)
}

fn json(heard: &EventDelivery) -> String {
    match heard {
        // An event holds nothing that JSON could not.
        EventDelivery::Event(event) => serde_json::to_string(event.as_ref()).unwrap_or_default(),
        EventDelivery::Missed(missed) => format!("{{\"missed\":{missed}}}"),
    }
}
