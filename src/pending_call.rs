//! What a call in an event loop is awaited by: an awaitable that asyncio takes for a future.
//!
//! It follows what `asyncio.Task` asks of futures that are not its own: `_asyncio_future_blocking`,
//! `get_loop`, `add_done_callback`, `result` and `cancel`. Being made here, it costs a third of one of
//! asyncio's, whose round trip through the loop it leaves out.

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use ginnel_client::CallEvent;

use super::event_loop::LoopDriver;
use super::observer::CallObserver;

/// A call whose answer is awaited.
#[pyclass(module = "ginnel._native", weakref)]
pub(super) struct PendingCall {
    state: PendingCallState,
    /// Whether a task is about to wait for this; asyncio sets it back.
    #[pyo3(get, set, name = "_asyncio_future_blocking")]
    is_blocking: bool,
    callbacks: Vec<Callback>,
    /// Whether the next callback is that of the task that waits: it asks first, and then adds it.
    expects_task: bool,
    /// What hooks are to be told; the task that waits does it, so that they run as part of it.
    events: Vec<CallEvent>,
    observer: Option<CallObserver>,
    /// None once it was cleared for the garbage collector.
    driver: Option<Py<LoopDriver>>,
    number: u64,
}

enum PendingCallState {
    Pending,
    Done(Py<PyAny>),
    Failed(Py<PyAny>),
    Cancelled(Option<Py<PyAny>>),
}

struct Callback {
    function: Py<PyAny>,
    context: Option<Py<PyAny>>,
    /// Whether it wakes the task that waits.
    is_task: bool,
}

#[pymethods]
impl PendingCall {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        Self::notify_observer(slf)?;
        let mut call = slf.borrow_mut();
        if matches!(call.state, PendingCallState::Pending) {
            if call.is_blocking {
                return Err(PyRuntimeError::new_err("await wasn't used with a call"));
            }
            call.is_blocking = true;
            call.expects_task = true;
            return Ok(slf.clone());
        }
        // In a tuple, since one that is the value would become the arguments.
        Err(match call.outcome(py) {
            Ok(value) => PyStopIteration::new_err((value.unbind(),)),
            Err(error) => error,
        })
    }

    /// The result, or the exception that the call ended with.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.state {
            // The task that waits was woken to tell of events.
            PendingCallState::Pending if !self.events.is_empty() => Ok(py.None().into_bound(py)),
            PendingCallState::Pending => {
                Err(asyncio_error(py, "InvalidStateError", "Result is not set."))
            }
            _ => self.outcome(py),
        }
    }

    /// The exception that the call ended with; None when it has a result.
    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.state {
            PendingCallState::Pending => {
                Err(asyncio_error(py, "InvalidStateError", "Exception is not set."))
            }
            PendingCallState::Done(_) => Ok(None),
            PendingCallState::Failed(error) => Ok(Some(error.bind(py).clone())),
            PendingCallState::Cancelled(_) => self.outcome(py).map(Some),
        }
    }

    fn done(&self) -> bool {
        !matches!(self.state, PendingCallState::Pending)
    }

    fn cancelled(&self) -> bool {
        matches!(self.state, PendingCallState::Cancelled(_))
    }

    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let event_loop = self.driver.as_ref().and_then(|driver| driver.get().event_loop(py));
        event_loop.ok_or_else(|| PyRuntimeError::new_err("the loop of the call is gone"))
    }

    #[pyo3(signature = (function, /, *, context = None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        function: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let is_task = std::mem::take(&mut slf.borrow_mut().expects_task);
        let callback = Callback { function, context, is_task };
        if slf.borrow().done() {
            return callback.call_soon(slf);
        }
        slf.borrow_mut().callbacks.push(callback);
        Ok(())
    }

    /// Takes a callback back; gives how often it was there.
    fn remove_done_callback(
        &mut self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let before = std::mem::take(&mut self.callbacks);
        let count = before.len();
        for callback in before {
            if !callback.function.bind(py).eq(function)? {
                self.callbacks.push(callback);
            }
        }
        Ok(count - self.callbacks.len())
    }

    /// Drops the request; whoever waits gets CancelledError.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut call = slf.borrow_mut();
        if call.done() {
            return Ok(false);
        }
        call.state = PendingCallState::Cancelled(msg);
        call.events.clear();
        let callbacks = std::mem::take(&mut call.callbacks);
        drop(call);
        slf.borrow().abandon_request(slf.py());
        callbacks.into_iter().try_for_each(|callback| callback.call_soon(slf)).map(|()| true)
    }

    fn __repr__(&self) -> String {
        let state = match self.state {
            PendingCallState::Pending => "pending",
            PendingCallState::Done(_) | PendingCallState::Failed(_) => "finished",
            PendingCallState::Cancelled(_) => "cancelled",
        };
        format!("<ginnel call {} {state}>", self.number)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for callback in &self.callbacks {
            visit.call(&callback.function)?;
            visit.call(&callback.context)?;
        }
        match &self.state {
            PendingCallState::Done(value) | PendingCallState::Failed(value) => visit.call(value)?,
            PendingCallState::Cancelled(message) => visit.call(message)?,
            PendingCallState::Pending => {}
        }
        self.observer.as_ref().map_or(Ok(()), |observer| observer.traverse(&visit))?;
        visit.call(&self.driver)
    }

    fn __clear__(&mut self) {
        self.callbacks.clear();
        self.driver = None;
    }
}

impl PendingCall {
    pub(super) fn new(driver: Py<LoopDriver>, number: u64, observer: Option<CallObserver>) -> Self {
        Self {
            state: PendingCallState::Pending,
            is_blocking: false,
            callbacks: Vec::new(),
            expects_task: false,
            events: Vec::new(),
            observer,
            driver: Some(driver),
            number,
        }
    }

    /// Whether there is nothing to settle any more.
    pub(super) fn is_over(&self) -> bool {
        self.done()
    }

    /// Has the task that waits tell of an event.
    ///
    /// # Errors
    /// As [`PendingCall::settle`].
    pub(super) fn queue_event(slf: &Bound<'_, Self>, event: CallEvent) -> PyResult<()> {
        let mut call = slf.borrow_mut();
        if call.done() {
            return Ok(());
        }
        call.events.push(event);
        let is_task = |callback: &mut Callback| callback.is_task;
        let woken = call.callbacks.extract_if(.., is_task).collect();
        drop(call);
        Self::run_all(slf, woken)
    }

    /// Tells of the events so far; what ends the call with one of them drops its request.
    fn notify_observer(slf: &Bound<'_, Self>) -> PyResult<()> {
        let events = std::mem::take(&mut slf.borrow_mut().events);
        if events.is_empty() {
            return Ok(());
        }
        let observer = slf.borrow_mut().observer.take();
        let notified = observer.as_ref().map_or(Ok(()), |observer| {
            events.iter().try_for_each(|event| observer.notify(slf.py(), event))
        });
        slf.borrow_mut().observer = observer;
        if notified.is_err() {
            slf.borrow().abandon_request(slf.py());
        }
        notified
    }

    /// Drops the request.
    fn abandon_request(&self, py: Python<'_>) {
        if let Some(driver) = &self.driver {
            driver.bind(py).get().abandon_call(self.number);
        }
    }

    /// Ends the call and runs what waits for that, within the callback of the loop that this is.
    ///
    /// # Errors
    /// With what must end the loop: KeyboardInterrupt or SystemExit.
    pub(super) fn settle(
        slf: &Bound<'_, Self>,
        outcome: PyResult<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut call = slf.borrow_mut();
        if call.done() {
            return Ok(());
        }
        call.state = match outcome {
            Ok(value) => PendingCallState::Done(value.unbind()),
            Err(error) => PendingCallState::Failed(error.into_value(slf.py()).into_any()),
        };
        let callbacks = std::mem::take(&mut call.callbacks);
        drop(call);
        Self::run_all(slf, callbacks)
    }

    /// Runs callbacks, each whatever became of the others.
    fn run_all(slf: &Bound<'_, Self>, callbacks: Vec<Callback>) -> PyResult<()> {
        let mut outcome = Ok(());
        for callback in callbacks {
            let ran = callback.run_in_context(slf);
            outcome = outcome.and(ran);
        }
        outcome
    }

    fn outcome<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.state {
            PendingCallState::Pending => Err(PyRuntimeError::new_err("the call is pending")),
            PendingCallState::Done(value) => Ok(value.bind(py).clone()),
            PendingCallState::Failed(error) => Err(PyErr::from_value(error.bind(py).clone())),
            PendingCallState::Cancelled(message) => {
                let class = asyncio_class(py, "CancelledError")?;
                Err(PyErr::from_value(match message {
                    Some(message) => class.call1((message,))?,
                    None => class.call0()?,
                }))
            }
        }
    }
}

impl Callback {
    /// Runs it in its context, as the loop would.
    fn run_in_context(&self, call: &Bound<'_, PendingCall>) -> PyResult<()> {
        let py = call.py();
        let ran = match &self.context {
            Some(context) => {
                context.bind(py).call_method1(intern!(py, "run"), (&self.function, call))
            }
            None => self.function.bind(py).call1((call,)),
        };
        let Err(error) = ran else { return Ok(()) };
        if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
            return Err(error);
        }
        // What a callback raises concerns its loop alone.
        let details = PyDict::new(py);
        details.set_item("message", "Exception in a callback of a call")?;
        details.set_item("exception", error.value(py))?;
        let event_loop = call.borrow().get_loop(py)?;
        event_loop.bind(py).call_method1("call_exception_handler", (details,)).map(drop)
    }

    /// Has the loop run it soon.
    fn call_soon(self, call: &Bound<'_, PendingCall>) -> PyResult<()> {
        let py = call.py();
        let event_loop = call.borrow().get_loop(py)?;
        let options = PyDict::new(py);
        if let Some(context) = &self.context {
            options.set_item("context", context)?;
        }
        let arguments = (&self.function, call);
        event_loop.bind(py).call_method("call_soon", arguments, Some(&options)).map(drop)
    }
}

fn asyncio_class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static EXCEPTIONS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let import = || py.import("asyncio.exceptions").map(Bound::unbind);
    EXCEPTIONS.get_or_try_init(py, import)?.bind(py).getattr(name)
}

fn asyncio_error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    match asyncio_class(py, class).and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
