//! Blocking calls: each drives a runtime of its own on the calling thread.
//!
//! A lane is a runtime with the connections that it drives. A call takes the lane that was used
//! last, or makes one, and puts it back. So one thread uses one connection, and many threads use as
//! many as there are calls at the same time. No wake-up crosses a thread.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use super::Error;
use super::pool::Pool;

/// How many idle lanes are kept; each holds three descriptors and its connections.
const MAX_IDLE: usize = 32;
/// How often a waiting call asks whether it was interrupted.
const TICK: Duration = Duration::from_millis(50);

/// The idle lanes of a client.
#[derive(Default)]
pub(super) struct Lanes {
    idle: Mutex<Vec<Lane>>,
}

struct Lane {
    // Before the runtime: its connections are dropped first.
    pool: Pool,
    runtime: Runtime,
}

impl Lanes {
    /// Runs a call to its end on this thread; `Ok(None)` when it was interrupted.
    pub(super) fn run<T: Send>(
        &self,
        call: impl AsyncFnOnce(&Pool) -> Result<T, Error> + Send,
        interrupted: impl FnMut() -> bool + Send,
    ) -> Result<Option<T>, Error> {
        if Handle::try_current().is_err() {
            return self.run_here(call, interrupted);
        }
        // Within another call, as in a hook or a signal handler: a thread drives one runtime only.
        let done = thread::scope(|scope| scope.spawn(|| self.run_here(call, interrupted)).join());
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn run_here<T>(
        &self,
        call: impl AsyncFnOnce(&Pool) -> Result<T, Error>,
        interrupted: impl FnMut() -> bool,
    ) -> Result<Option<T>, Error> {
        let lane = self.take()?;
        let outcome = lane.runtime.block_on(watched(call(&lane.pool), interrupted));
        self.put(lane);
        outcome
    }

    /// Drops the idle lanes with their connections.
    pub(super) fn clear(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle);
    }

    fn take(&self) -> Result<Lane, Error> {
        if let Some(lane) = self.lock().pop() {
            return Ok(lane);
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
        Ok(Lane { pool: Pool::default(), runtime })
    }

    fn put(&self, lane: Lane) {
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE {
            idle.push(lane);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The call's outcome, or `Ok(None)` as soon as `interrupted` says so.
async fn watched<T>(
    call: impl Future<Output = Result<T, Error>>,
    mut interrupted: impl FnMut() -> bool,
) -> Result<Option<T>, Error> {
    let mut call = pin!(call);
    let mut tick = pin!(tokio::time::sleep(TICK));
    loop {
        tokio::select! {
            biased;
            outcome = &mut call => return outcome.map(Some),
            () = &mut tick => {
                if interrupted() {
                    return Ok(None);
                }
                tick.as_mut().reset(Instant::now() + TICK);
            }
        }
    }
}
