//! Brings finished calls into an asyncio loop.
//!
//! The network thread puts what is finished into a list. The first into an empty list makes a
//! descriptor readable that the loop watches; the loop then takes the whole list and settles the
//! futures on its own thread. So many calls share one wake-up, and the network thread never enters
//! the interpreter. A loop that cannot watch a descriptor, as the one of Windows, is called instead.

use std::collections::HashMap;
#[cfg(unix)]
use std::io::{Read, Write};
#[cfg(unix)]
use std::os::{fd::AsRawFd, unix::net::UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;

use super::core::Expected;
use super::error;
use super::watch::{Interest, Watch};
use crate::api::Call;
use crate::client::{Answer, Client, Error, Event, Observer, Task};

/// The calls of one loop.
#[pyclass(frozen, module = "ginnel._native")]
pub(super) struct Bridge {
    mailbox: Arc<Mailbox>,
    /// What the loop watches, unless it is called.
    #[cfg(unix)]
    wake: Option<UnixStream>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    last: u64,
    calls: HashMap<u64, (Waiting, Task)>,
}

/// What a call is for.
pub(super) struct Waiting {
    /// The future that its result settles.
    pub(super) future: Py<PyAny>,
    /// What becomes of its answer.
    pub(super) expected: Expected,
    /// Who wants to know what happens meanwhile.
    pub(super) watch: Option<Watch>,
}

/// Where the network thread leaves its news.
struct Mailbox {
    news: Mutex<Vec<(u64, News)>>,
    bell: Bell,
}

/// What a call can be heard of.
enum News {
    Event(Event),
    Finished(Result<Answer, Error>),
}

/// How the loop learns that there is news.
enum Bell {
    /// A byte for the descriptor that it watches.
    #[cfg(unix)]
    Descriptor(UnixStream),
    /// A call, from the network thread.
    Callback(Py<PyAny>),
}

#[pymethods]
impl Bridge {
    /// A bridge that makes its descriptor readable, or that calls `notify` from another thread.
    #[new]
    #[pyo3(signature = (notify=None))]
    fn new(notify: Option<Py<PyAny>>) -> PyResult<Self> {
        match notify {
            Some(notify) => Ok(Self::calling(notify)),
            None => Self::watched(),
        }
    }

    /// The descriptor that the loop shall watch for reading.
    fn fileno(&self) -> PyResult<i32> {
        #[cfg(unix)]
        if let Some(wake) = &self.wake {
            return Ok(wake.as_raw_fd());
        }
        Err(PyNotImplementedError::new_err("this bridge has no descriptor"))
    }

    /// Settles the futures of what is finished.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        #[cfg(unix)]
        if let Some(mut wake) = self.wake.as_ref() {
            // Nothing to read means that an earlier call took the list already.
            let _ = wake.read(&mut [0; 64]);
        }
        let all = std::mem::take(&mut *lock(&self.mailbox.news));
        for (ticket, news) in all {
            match news {
                News::Event(event) => self.tell(py, ticket, &event),
                News::Finished(outcome) => self.settle(py, ticket, outcome)?,
            }
        }
        Ok(())
    }

    /// Drops the request of a call that nobody waits for any more.
    fn abandon(&self, ticket: u64) {
        let waiting = lock(&self.pending).calls.remove(&ticket);
        if let Some((_, task)) = waiting {
            task.abort();
        }
    }
}

impl Bridge {
    fn calling(notify: Py<PyAny>) -> Self {
        Self {
            mailbox: Mailbox::new(Bell::Callback(notify)),
            #[cfg(unix)]
            wake: None,
            pending: Mutex::default(),
        }
    }

    #[cfg(unix)]
    fn watched() -> PyResult<Self> {
        let (wake, bell) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let mailbox = Mailbox::new(Bell::Descriptor(bell));
        Ok(Self { mailbox, wake: Some(wake), pending: Mutex::default() })
    }

    #[cfg(not(unix))]
    fn watched() -> PyResult<Self> {
        Err(PyNotImplementedError::new_err("no descriptor to watch on this system"))
    }

    /// Sends a request; its answer settles the future that waits.
    pub(super) fn send(
        &self,
        py: Python<'_>,
        client: &Client,
        call: Call,
        waiting: Waiting,
    ) -> PyResult<u64> {
        let mailbox = Arc::clone(&self.mailbox);
        // Held until the call is noted; the loop's thread, which runs this, is the one that drains.
        let mut pending = lock(&self.pending);
        pending.last += 1;
        let ticket = pending.last;
        let observer = waiting.watch.as_ref().map(|watch| self.observer(ticket, watch.interest()));
        let done = move |outcome| mailbox.put(ticket, News::Finished(outcome));
        let task = client
            .send_in_background(call, observer, done)
            .map_err(|problem| error::failed(py, problem))?;
        pending.calls.insert(ticket, (waiting, task));
        Ok(ticket)
    }

    fn observer(&self, ticket: u64, interest: Interest) -> Box<Observer<'static>> {
        let mailbox = Arc::clone(&self.mailbox);
        Box::new(move |event| {
            if interest.covers(&event) {
                mailbox.put(ticket, News::Event(event));
            }
        })
    }

    fn tell(&self, py: Python<'_>, ticket: u64, event: &Event) {
        // Taken out meanwhile: whoever is told may make a call, or abandon this one.
        let watch = match lock(&self.pending).calls.get_mut(&ticket) {
            Some((waiting, _)) => waiting.watch.take(),
            None => None,
        };
        let Some(watch) = watch else { return };
        watch.tell(py, event);
        if let Some((waiting, _)) = lock(&self.pending).calls.get_mut(&ticket) {
            waiting.watch = Some(watch);
        }
    }

    fn settle(&self, py: Python<'_>, ticket: u64, outcome: Result<Answer, Error>) -> PyResult<()> {
        let Some((waiting, _)) = lock(&self.pending).calls.remove(&ticket) else { return Ok(()) };
        let result = match outcome {
            Ok(answer) => waiting.expected.read(py, answer),
            Err(problem) => Err(error::failed(py, problem)),
        };
        let future = waiting.future.bind(py);
        if future.call_method0("done")?.is_truthy()? {
            return Ok(());
        }
        match result {
            Ok(value) => future.call_method1("set_result", (value,))?,
            Err(error) => future.call_method1("set_exception", (error,))?,
        };
        Ok(())
    }
}

impl Mailbox {
    fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { news: Mutex::default(), bell })
    }

    fn put(&self, ticket: u64, latest: News) {
        let mut news = lock(&self.news);
        let first = news.is_empty();
        news.push((ticket, latest));
        drop(news);
        if first {
            self.bell.ring();
        }
    }
}

impl Bell {
    fn ring(&self) {
        match self {
            #[cfg(unix)]
            Self::Descriptor(end) => {
                // A full pipe is readable as it is.
                let _ = (&mut &*end).write(&[1]);
            }
            Self::Callback(notify) => {
                // An interpreter that is shutting down has no loop left to tell.
                Python::try_attach(|py| {
                    if let Err(error) = notify.call0(py) {
                        error.write_unraisable(py, None);
                    }
                });
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
