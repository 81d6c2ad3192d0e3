//! The end of the interpreter while other threads are in calls.
//!
//! A thread that wants the interpreter's lock when that ends is taken off its stack by CPython (3.13 and
//! before), through frames of Rust, which may abort the process. So nobody of ours is to want it then:
//! `atexit` calls [`wait_for_calls`], which lets those finish who hold the lock or are about to take it,
//! and from then on a thread that comes back from the network sleeps until the process is gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use ginnel_base::fork::PerProcess;

/// How long the end waits for threads that run Python within a call, such as hooks.
const MAX_EXIT_WAIT: Duration = Duration::from_secs(1);

/// Who is in a call of ours, in this process.
static ACTIVE_CALLS: PerProcess<ActiveCalls> = PerProcess::new(ActiveCalls::new);

thread_local! {
    /// Whether this is the thread that ends the interpreter.
    static IS_LAST: Cell<bool> = const { Cell::new(false) };
}

struct ActiveCalls {
    is_over: AtomicBool,
    /// How many threads hold the interpreter's lock within a call of ours, or wait for it.
    attached: AtomicUsize,
}

impl ActiveCalls {
    const fn new() -> Self {
        Self { is_over: AtomicBool::new(false), attached: AtomicUsize::new(0) }
    }

    /// To be called before a thread takes the lock; does not return at the end.
    fn attach(&self) {
        self.attached.fetch_add(1, SeqCst);
        if self.is_over() {
            self.detach();
            park_forever();
        }
    }

    /// Whether this thread must not have the lock any more.
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst) && !IS_LAST.get()
    }

    fn detach(&self) {
        self.attached.fetch_sub(1, SeqCst);
    }
}

fn park_forever() {
    loop {
        thread::park();
    }
}

/// A call of ours from Python; it has the interpreter's lock.
pub(super) struct CallGuard<'py>(Python<'py>);

impl<'py> CallGuard<'py> {
    pub(super) fn new(py: Python<'py>) -> Self {
        let calls = ACTIVE_CALLS.current();
        if calls.is_over() {
            py.detach(park_forever);
        }
        calls.attached.fetch_add(1, SeqCst);
        Self(py)
    }

    /// Does something without the lock.
    pub(super) fn run_detached<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let calls = ACTIVE_CALLS.current();
        self.0.detach(|| {
            calls.detach();
            let done = work();
            calls.attach();
            done
        })
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        ACTIVE_CALLS.current().detach();
    }
}

/// Does something with the lock on a thread that has let go of it; none at the end.
pub(super) fn run_attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let calls = ACTIVE_CALLS.current();
    calls.attach();
    let done = Python::try_attach(work);
    calls.detach();
    done
}

/// Lets no thread come back into the interpreter any more.
#[pyfunction]
pub(super) fn wait_for_calls(py: Python<'_>) {
    let calls = ACTIVE_CALLS.current();
    // Functions of `atexit` that come after this one may still make calls.
    IS_LAST.set(true);
    calls.is_over.store(true, SeqCst);
    py.detach(|| {
        let end = Instant::now() + MAX_EXIT_WAIT;
        while calls.attached.load(SeqCst) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
