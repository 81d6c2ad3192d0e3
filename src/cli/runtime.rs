//! The threads that services and agents run on.

use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use super::failure::{Exit, Failure};

/// The variable by which tokio can be told how many threads to use.
const THREADS: &str = "TOKIO_WORKER_THREADS";

/// A runtime for a service or an agent.
///
/// Half of the cores serve, at least one. The work for one request is a few microseconds long, and
/// threads that wake each other for so little cost a third more than they bring; the kernel, which
/// carries the bytes, and whoever is at the other end have use for the other half.
pub(super) fn start() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os(THREADS).is_none() {
        let cores = available_parallelism().map_or(1, NonZero::get);
        builder.worker_threads((cores / 2).max(1));
    }
    builder.enable_all().build().map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}
