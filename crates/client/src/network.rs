//! Asynchronous calls of languages with an event loop of their own: one thread for all of them.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use ginnel_base::fork::PerProcess;

use super::Error;

static NETWORK: PerProcess<OnceLock<Handle>> = PerProcess::new(OnceLock::new);

/// A call under way.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl Task {
    /// Drops the request.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// Runs a future on the network thread.
pub(super) fn spawn_on_network(
    future: impl Future<Output = ()> + Send + 'static,
) -> Result<Task, Error> {
    let network = NETWORK.current();
    let handle = match network.get() {
        Some(handle) => handle,
        None => {
            let started = start_network_thread().map_err(Error::Start)?;
            network.get_or_init(|| started)
        }
    };
    Ok(Task(handle.spawn(future).abort_handle()))
}

/// The thread lives as long as the process: it holds nothing that must be closed in order.
fn start_network_thread() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("ginnel-network".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
