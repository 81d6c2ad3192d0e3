//! A runtime of one thread, for a service or an agent inside of another program.
//!
//! A session, its streams and their visitors hand each other pieces of work of a few microseconds.
//! Between threads each of these costs a wake-up by the kernel, which takes longer than the work: one
//! thread carries more than two, and leaves the other cores to the program (`docs/benchmarks.md`).

use std::future::Future;
use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::logging::{ignore, or_debug};

/// A runtime whose tasks, sockets and timers all belong to one thread of its own.
///
/// Dropping it ends the thread without waiting for it.
pub struct ThreadRuntime {
    handle: Handle,
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    /// Only the one who ends it waits; the lock makes the runtime one that threads share.
    ended: Mutex<Receiver<()>>,
}

impl ThreadRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptors to wait with.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ending, ended) = mpsc::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            ignore(runtime.block_on(stopped), "a dropped sender says stop as well");
            runtime.shutdown_background();
            ignore(ending.send(()), "nobody may wait for the end");
        })?;
        Ok(Self { handle, stop: Some(stop), ended: Mutex::new(ended) })
    }

    /// Where tasks are spawned.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a future on the thread of the caller; what it spawns runs on the runtime's.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Drops all tasks and ends the thread, waiting at most so long.
    pub fn shutdown_timeout(mut self, timeout: Duration) {
        drop(self.stop.take());
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        or_debug!(ended.recv_timeout(timeout), "the thread of a runtime has not ended in time");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn tasks_run_on_its_thread_and_end_with_it() {
        let runtime = ThreadRuntime::start("a-runtime").unwrap();
        let held = Arc::new(());

        let kept = held.clone();
        runtime.handle().spawn(async move {
            std::future::pending::<()>().await;
            drop(kept);
        });
        let (task, main) = runtime.block_on(async {
            let name = || thread::current().name().map(ToOwned::to_owned);
            tokio::time::sleep(Duration::from_millis(1)).await;
            (tokio::spawn(async move { name() }).await.unwrap(), name())
        });
        assert_eq!(task.as_deref(), Some("a-runtime"));
        assert_ne!(main.as_deref(), Some("a-runtime"));
        assert_eq!(Arc::strong_count(&held), 2);

        runtime.shutdown_timeout(Duration::from_secs(10));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
