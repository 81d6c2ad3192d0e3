//! Brings finished calls into an asyncio loop.
//!
//! The network thread puts what is finished into a list. The first into an empty list makes a
//! descriptor readable that the loop watches; the loop then takes the whole list and settles the
//! futures on its own thread. So many calls share one wake-up, and the network thread never enters
//! the interpreter.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::core::Expected;
use super::error;
use crate::api::Call;
use crate::client::{Answer, Client, Error, Task};

/// The calls of one loop.
#[pyclass(frozen, module = "ginnel._native")]
pub(super) struct Bridge {
    mailbox: Arc<Mailbox>,
    wake: UnixStream,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    last: u64,
    calls: HashMap<u64, Waiting>,
}

struct Waiting {
    future: Py<PyAny>,
    expected: Expected,
    task: Task,
}

/// Where the network thread leaves what is finished.
struct Mailbox {
    finished: Mutex<Vec<(u64, Result<Answer, Error>)>>,
    bell: UnixStream,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let (wake, bell) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let mailbox = Arc::new(Mailbox { finished: Mutex::default(), bell });
        Ok(Self { mailbox, wake, pending: Mutex::default() })
    }

    /// The descriptor that the loop shall watch for reading.
    fn fileno(&self) -> i32 {
        self.wake.as_raw_fd()
    }

    /// Settles the futures of what is finished.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut bytes = [0; 64];
        // Nothing to read means that an earlier call took the list already.
        let _ = (&self.wake).read(&mut bytes);
        let finished = std::mem::take(&mut *lock(&self.mailbox.finished));
        for (ticket, outcome) in finished {
            let Some(waiting) = lock(&self.pending).calls.remove(&ticket) else { continue };
            let result = match outcome {
                Ok(answer) => waiting.expected.read(py, answer),
                Err(problem) => Err(error::failed(py, problem)),
            };
            let future = waiting.future.bind(py);
            if future.call_method0("done")?.is_truthy()? {
                continue;
            }
            match result {
                Ok(value) => future.call_method1("set_result", (value,))?,
                Err(error) => future.call_method1("set_exception", (error,))?,
            };
        }
        Ok(())
    }

    /// Drops the request of a call that nobody waits for any more.
    fn abandon(&self, ticket: u64) {
        let waiting = lock(&self.pending).calls.remove(&ticket);
        if let Some(waiting) = waiting {
            waiting.task.abort();
        }
    }
}

impl Bridge {
    /// Sends a request; its answer settles `future`.
    pub(super) fn send(
        &self,
        py: Python<'_>,
        client: &Client,
        call: Call,
        expected: Expected,
        future: Py<PyAny>,
    ) -> PyResult<u64> {
        let mailbox = Arc::clone(&self.mailbox);
        // Held until the call is noted; the loop's thread, which runs this, is the one that drains.
        let mut pending = lock(&self.pending);
        pending.last += 1;
        let ticket = pending.last;
        let task = client
            .send_in_background(call, move |outcome| mailbox.put(ticket, outcome))
            .map_err(|problem| error::failed(py, problem))?;
        pending.calls.insert(ticket, Waiting { future, expected, task });
        Ok(ticket)
    }
}

impl Mailbox {
    fn put(&self, ticket: u64, outcome: Result<Answer, Error>) {
        let mut finished = lock(&self.finished);
        let first = finished.is_empty();
        finished.push((ticket, outcome));
        drop(finished);
        if first {
            // A full pipe is readable as it is.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
