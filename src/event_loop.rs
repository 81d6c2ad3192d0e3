//! Drives the calls of one event loop, on the loop's own thread.
//!
//! The loop watches one descriptor, that of a `Reactor`, and calls [`LoopDriver::drain`] when it is
//! readable. That settles all calls that are complete, and runs the tasks that wait for them, before it
//! sends what those start: one wake-up of the loop serves many calls, and no other thread enters the
//! interpreter. A loop that cannot watch a descriptor, as the one of Windows, is called from the network
//! thread instead, which has the calls on tokio.
//!
//! Code of the user runs in between, so nothing is locked then.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyNotImplementedError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyWeakrefMethods, PyWeakrefReference};

use ginnel_api::Call;
use ginnel_client::number_map::NumberMap;
use ginnel_client::{
    ApiResponse, CallEvent, CallEventKind, CallUpdate, Client, Error, EventFilter, Task,
};

use super::cassette::CassetteRecording;
use super::error;
use super::exit::{CallGuard, run_attached};
use super::expected_result::ExpectedResult;
use super::logging;
use super::observer::CallObserver;
use super::pending_call::PendingCall;
use super::results::BodyDecoder;

/// The calls of one loop.
#[pyclass(frozen, module = "ginnel._native", weakref)]
pub(super) struct LoopDriver {
    /// Weak, since the loop holds this.
    event_loop: Py<PyWeakrefReference>,
    calls: Mutex<NumberMap<LoopCall>>,
    timer: Mutex<ExpiryTimer>,
    /// Large answers, of which each has a slice in its turn.
    decoding: Mutex<VecDeque<SlicedResponse>>,
    transport: Transport,
}

/// What moves the bytes.
enum Transport {
    #[cfg(unix)]
    Reactor(Box<Mutex<ginnel_client::Reactor>>),
    Network(Arc<UpdateQueue>, Mutex<NetworkTasks>),
}

/// The calls on the network thread.
#[derive(Default)]
struct NetworkTasks {
    last: u64,
    running: NumberMap<Task>,
}

/// When the loop calls [`LoopDriver::expire`] next.
#[derive(Default)]
struct ExpiryTimer {
    next: Option<Instant>,
}

/// What a call is for.
struct LoopCall {
    pending: Py<PendingCall>,
    handler: ResponseHandler,
}

/// What becomes of the answer of a call.
pub(super) struct ResponseHandler {
    pub(super) expected: ExpectedResult,
    /// The cassette that awaits it, too.
    pub(super) recording: Option<CassetteRecording>,
}

/// A large answer.
struct SlicedResponse {
    pending: Py<PendingCall>,
    answer: ApiResponse,
    decoder: BodyDecoder,
}

/// How long the loop may be held up by large answers in one of its turns.
const MAX_DECODE_TIME: Duration = Duration::from_millis(2);

/// Updates of calls on the network thread.
struct UpdateQueue {
    updates: Mutex<Vec<(u64, CallUpdate)>>,
    /// Called when there is some.
    notify: Py<PyAny>,
}

#[pymethods]
impl LoopDriver {
    /// A driver for a loop that watches its descriptor, or that `notify` has drain from another thread.
    #[new]
    #[pyo3(signature = (event_loop, notify = None))]
    fn new(event_loop: &Bound<'_, PyAny>, notify: Option<Py<PyAny>>) -> PyResult<Self> {
        let transport = match notify {
            Some(notify) => Transport::Network(
                Arc::new(UpdateQueue { updates: Mutex::default(), notify }),
                Mutex::default(),
            ),
            None => Transport::new_reactor()?,
        };
        Ok(Self {
            event_loop: PyWeakrefReference::new(event_loop)?.unbind(),
            calls: Mutex::default(),
            timer: Mutex::default(),
            decoding: Mutex::default(),
            transport,
        })
    }

    /// The descriptor that the loop shall watch for reading.
    fn fileno(&self) -> PyResult<i32> {
        match &self.transport {
            #[cfg(unix)]
            Transport::Reactor(reactor) => {
                Ok(std::os::fd::AsRawFd::as_raw_fd(&*lock_mutex(reactor)))
            }
            Transport::Network(..) => {
                Err(PyNotImplementedError::new_err("this driver has no descriptor"))
            }
        }
    }

    /// Settles what is complete, and sends what is started meanwhile.
    fn drain(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let _guard = CallGuard::new(py);
        let this = slf.get();
        let delivered = this.deliver_updates(slf, this.transport.run_turn());
        // Also when the program is about to end: what was started must not wait for another turn.
        let flushed = this.deliver_updates(slf, this.transport.end_turn());
        this.arm_timer(slf)?;
        logging::deliver_records(py)?;
        delivered.and(flushed)
    }

    /// Ends what has lasted for too long.
    fn expire(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let _guard = CallGuard::new(py);
        let this = slf.get();
        lock_mutex(&this.timer).next = None;
        let delivered = this.deliver_updates(slf, this.transport.expire_calls());
        this.arm_timer(slf)?;
        delivered
    }

    /// Decodes a slice of a large answer.
    fn decode(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let _guard = CallGuard::new(py);
        let this = slf.get();
        let Some(mut next) = lock_mutex(&this.decoding).pop_front() else { return Ok(()) };
        if next.pending.borrow(py).is_over() {
            return this.decode_soon(slf);
        }
        let outcome = match next.decoder.advance(py, MAX_DECODE_TIME) {
            Ok(None) => {
                lock_mutex(&this.decoding).push_back(next);
                return this.decode_soon(slf);
            }
            Ok(Some(value)) => Ok(value),
            Err(problem) => Err(error::decode_error(py, &next.answer, problem)),
        };
        this.decode_soon(slf)?;
        let settled = PendingCall::settle(next.pending.bind(py), outcome);
        let flushed = this.deliver_updates(slf, this.transport.end_turn());
        this.arm_timer(slf)?;
        settled.and(flushed)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Transport::Network(queue, _) = &self.transport {
            visit.call(&queue.notify)?;
        }
        visit.call(&self.event_loop)?;
        // Whoever holds the lock uses what is in there.
        let Ok(calls) = self.calls.try_lock() else { return Ok(()) };
        for entry in calls.values() {
            visit.call(&entry.pending)?;
        }
        let Ok(decoding) = self.decoding.try_lock() else { return Ok(()) };
        for large in decoding.iter() {
            visit.call(&large.pending)?;
            large.decoder.traverse(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let calls = std::mem::take(&mut *lock_mutex(&self.calls));
        drop(calls);
        let decoding = std::mem::take(&mut *lock_mutex(&self.decoding));
        drop(decoding);
    }
}

/// The number of calls that the transport knows nothing of.
const REPLAYED_CALL: u64 = u64::MAX;
/// What is told before anything is sent.
const FIRST_EVENT: CallEvent = CallEvent { attempt: 1, kind: CallEventKind::Sent };

impl LoopDriver {
    /// The loop, unless it is gone.
    pub(super) fn event_loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.event_loop.bind(py).upgrade().map(Bound::unbind)
    }

    /// Whether this drives the calls of that loop.
    pub(super) fn drives_loop(&self, event_loop: &Bound<'_, PyAny>) -> bool {
        let driven = self.event_loop.bind(event_loop.py()).upgrade();
        driven.is_some_and(|driven| driven.is(event_loop))
    }

    /// Starts a call.
    pub(super) fn start_call(
        slf: &Bound<'_, Self>,
        event_loop: &Bound<'_, PyAny>,
        client: &Client,
        (call, handler): (Call, ResponseHandler),
        observer: Option<CallObserver>,
    ) -> PyResult<Py<PendingCall>> {
        let py = slf.py();
        let this = slf.get();
        if let Some(observer) = &observer {
            // Here, where the caller's code runs; the transport says it too late.
            observer.notify(py, &FIRST_EVENT)?;
        }
        let filter = observer.as_ref().map(CallObserver::filter);
        let started = this.transport.start_call(client, call, filter);
        let (number, has_updates) = started.map_err(|problem| error::call_error(py, problem))?;
        let pending = Py::new(py, PendingCall::new(slf.clone().unbind(), number, observer))?;
        let entry = LoopCall { pending: pending.clone_ref(py), handler };
        lock_mutex(&this.calls).insert(number, entry);
        if has_updates {
            // Not now: a task is running, and its call has not begun to be awaited.
            let drain = slf.getattr(intern!(py, "drain"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (drain,))?;
        }
        this.arm_timer(slf)?;
        Ok(pending)
    }

    /// A call whose outcome is known, and told when the loop comes round, as any other's.
    pub(super) fn settle_soon(
        slf: &Bound<'_, Self>,
        event_loop: &Bound<'_, PyAny>,
        outcome: PyResult<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PendingCall>> {
        let py = slf.py();
        let pending = Py::new(py, PendingCall::new(slf.clone().unbind(), REPLAYED_CALL, None))?;
        let known = Mutex::new(Some((pending.clone_ref(py), outcome.map(Bound::unbind))));
        let settle = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            let known = lock_mutex(&known).take();
            let py = arguments.py();
            known.map_or(Ok(()), |(pending, outcome)| {
                PendingCall::settle(pending.bind(py), outcome.map(|value| value.into_bound(py)))
            })
        })?;
        event_loop.call_method1(intern!(py, "call_soon"), (settle,))?;
        Ok(pending)
    }

    /// Drops the request of a call that nobody waits for any more.
    pub(super) fn abandon_call(&self, number: u64) {
        self.transport.cancel_call(number);
        let entry = lock_mutex(&self.calls).remove(&number);
        drop(entry);
    }

    /// Has the loop end what will have lasted for too long.
    fn arm_timer(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let Some(earliest) = self.transport.take_earliest() else { return Ok(()) };
        let mut timer = lock_mutex(&self.timer);
        if timer.next.is_some_and(|next| next <= earliest) {
            return Ok(());
        }
        timer.next = Some(earliest);
        drop(timer);
        let py = slf.py();
        let Some(event_loop) = self.event_loop.bind(py).upgrade() else { return Ok(()) };
        // A little later, so that it is over then by every clock.
        let seconds = earliest.saturating_duration_since(Instant::now()).as_secs_f64() + 0.001;
        let expire = slf.getattr(intern!(py, "expire"))?;
        event_loop.call_method1(intern!(py, "call_later"), (seconds, expire)).map(drop)
    }

    /// Tells what became of calls.
    ///
    /// # Errors
    /// With the first exception that must end the loop; the rest is told nevertheless.
    fn deliver_updates(
        &self,
        slf: &Bound<'_, Self>,
        updates: Vec<(u64, CallUpdate)>,
    ) -> PyResult<()> {
        let mut outcome = Ok(());
        for (number, update) in updates {
            let delivered = match update {
                CallUpdate::Event(event) => self.notify_call(slf.py(), number, event),
                CallUpdate::Finished(finished) => self.settle_call(slf, number, finished),
            };
            outcome = outcome.and(delivered);
        }
        outcome
    }

    fn notify_call(&self, py: Python<'_>, number: u64, event: CallEvent) -> PyResult<()> {
        if event == FIRST_EVENT {
            return Ok(());
        }
        let pending = lock_mutex(&self.calls).get(&number).map(|entry| entry.pending.clone_ref(py));
        pending.map_or(Ok(()), |pending| PendingCall::queue_event(pending.bind(py), event))
    }

    fn settle_call(
        &self,
        slf: &Bound<'_, Self>,
        number: u64,
        finished: Result<ApiResponse, Error>,
    ) -> PyResult<()> {
        let py = slf.py();
        let Some(LoopCall { pending, handler }) = lock_mutex(&self.calls).remove(&number) else {
            return Ok(());
        };
        self.transport.forget_call(number);
        let ResponseHandler { expected, recording } = handler;
        if let (Some(recording), Ok(answer)) = (recording, &finished)
            && let Err(error) = recording.record_response(py, answer)
        {
            return PendingCall::settle(pending.bind(py), Err(error));
        }
        let outcome = match finished.and_then(ApiResponse::error_for_status) {
            Ok(mut answer) => match expected.slice_decoder(py, &mut answer) {
                Some(decoder) => {
                    let mut decoding = lock_mutex(&self.decoding);
                    decoding.push_back(SlicedResponse { pending, answer, decoder });
                    let is_first = decoding.len() == 1;
                    drop(decoding);
                    // With others before it, its turn comes after theirs.
                    return if is_first { self.decode_soon(slf) } else { Ok(()) };
                }
                None => expected.convert_response(py, answer),
            },
            Err(problem) => Err(error::call_error(py, problem)),
        };
        PendingCall::settle(pending.bind(py), outcome)
    }

    /// Has the loop decode a slice when it comes round, if there is one.
    fn decode_soon(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        if lock_mutex(&self.decoding).is_empty() {
            return Ok(());
        }
        let Some(event_loop) = self.event_loop(py) else { return Ok(()) };
        let decode = slf.getattr(intern!(py, "decode"))?;
        event_loop.call_method1(py, intern!(py, "call_soon"), (decode,)).map(drop)
    }
}

impl Transport {
    #[cfg(unix)]
    fn new_reactor() -> PyResult<Self> {
        Ok(Self::Reactor(Box::new(Mutex::new(ginnel_client::Reactor::new()?))))
    }

    #[cfg(not(unix))]
    fn new_reactor() -> PyResult<Self> {
        Err(PyNotImplementedError::new_err("no descriptor to watch on this system"))
    }

    /// Starts a call; gives its number, and whether there are updates already.
    fn start_call(
        &self,
        client: &Client,
        call: Call,
        filter: Option<EventFilter>,
    ) -> Result<(u64, bool), Error> {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => {
                let mut reactor = lock_mutex(reactor);
                let number = reactor.start_call(client, call, filter)?;
                Ok((number, reactor.has_updates()))
            }
            Self::Network(queue, tasks) => {
                // Held until the call is noted; the loop's thread, which runs this, is the one that drains.
                let mut tasks = lock_mutex(tasks);
                tasks.last += 1;
                let number = tasks.last;
                let events = queue.clone();
                let on_event = move |event| {
                    events.push_update(number, CallUpdate::Event(event));
                    ControlFlow::Continue(())
                };
                let client_observer = filter.map(|filter| (filter, Box::new(on_event) as Box<_>));
                let queue = queue.clone();
                let done = move |outcome| queue.push_update(number, CallUpdate::Finished(outcome));
                let task = client.send_in_background(call, client_observer, done)?;
                tasks.running.insert(number, task);
                Ok((number, false))
            }
        }
    }

    fn run_turn(&self) -> Vec<(u64, CallUpdate)> {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => lock_mutex(reactor).run_turn(),
            Self::Network(queue, _) => std::mem::take(&mut *lock_mutex(&queue.updates)),
        }
    }

    fn end_turn(&self) -> Vec<(u64, CallUpdate)> {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => lock_mutex(reactor).end_turn(),
            Self::Network(..) => Vec::new(),
        }
    }

    fn expire_calls(&self) -> Vec<(u64, CallUpdate)> {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => {
                let mut reactor = lock_mutex(reactor);
                reactor.expire_calls();
                reactor.end_turn()
            }
            Self::Network(..) => Vec::new(),
        }
    }

    fn take_earliest(&self) -> Option<Instant> {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => lock_mutex(reactor).take_earliest(),
            // The network thread has a clock of its own.
            Self::Network(..) => None,
        }
    }

    fn cancel_call(&self, number: u64) {
        match self {
            #[cfg(unix)]
            Self::Reactor(reactor) => lock_mutex(reactor).cancel_call(number),
            Self::Network(_, tasks) => {
                if let Some(task) = lock_mutex(tasks).running.remove(&number) {
                    task.abort();
                }
            }
        }
    }

    /// Notes that a call is over.
    fn forget_call(&self, number: u64) {
        if let Self::Network(_, tasks) = self {
            lock_mutex(tasks).running.remove(&number);
        }
    }
}

impl UpdateQueue {
    fn push_update(&self, number: u64, update: CallUpdate) {
        let mut updates = lock_mutex(&self.updates);
        let is_first = updates.is_empty();
        updates.push((number, update));
        drop(updates);
        if is_first {
            // An interpreter that is shutting down has no loop left to tell.
            run_attached(|py| {
                if let Err(error) = self.notify.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
