//! The threads that services and agents run on, and how they keep memory.

use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

use ginnel_net::descriptors::DescriptorLimit;

use super::error::{CliError, CommandResult, Exit};
use super::output::eprint_line;

/// The variable by which tokio can be told how many threads to use.
const WORKER_THREADS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

/// With fewer file descriptors than this, it is said.
const MIN_DESCRIPTORS: usize = 4096;

/// A runtime for a service or an agent.
///
/// Half of the cores serve, at least one. The work for one request is a few microseconds long, and
/// threads that wake each other for so little cost a third more than they bring; the kernel, which
/// carries the bytes, and whoever is at the other end have use for the other half.
pub(super) fn start_runtime() -> CommandResult<Runtime> {
    keep_freed_memory();
    raise_descriptor_limit();
    let mut builder = match worker_threads() {
        Some(1) => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            if let Some(threads) = threads {
                builder.worker_threads(threads);
            }
            builder
        }
    };
    builder.enable_all().build().map_err(|error| CliError::new(Exit::Failed, error.to_string()))
}

/// How many threads serve; none where tokio reads it from the environment.
fn worker_threads() -> Option<usize> {
    if std::env::var_os(WORKER_THREADS_VARIABLE).is_some() {
        return None;
    }
    let cores = available_parallelism().map_or(1, NonZero::get);
    Some((cores / 2).max(1))
}

/// Lets the process have as many file descriptors as it may, and says when they are few.
fn raise_descriptor_limit() {
    let DescriptorLimit(descriptors) = DescriptorLimit::raise_to_maximum();
    if descriptors < MIN_DESCRIPTORS {
        eprint_line(&format!(
            "this process may open only {descriptors} files and connections at once; more visitors \
             need a higher limit (ulimit -n, LimitNOFILE= of systemd)"
        ));
    }
}

/// Lets the allocator keep a few megabytes that were freed.
///
/// By default it gives them back to the kernel at once. What is carried passes through buffers that
/// come and go all the time, and to get each back page by page took a sixth of the service's
/// processor time for bulk.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_freed_memory() {
    const TRIM_THRESHOLD_BYTES: libc::c_int = 4 << 20;
    // Setting the one stops the other from adapting itself.
    const MMAP_THRESHOLD_BYTES: libc::c_int = 1 << 20;
    // SAFETY: mallopt may be called at any time; with numbers it does not know it does nothing.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_freed_memory() {}
