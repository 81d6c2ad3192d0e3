//! Whether changes can be stored, and who is told when that changes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::StorageFault;
use super::batch_error::BatchError;

/// What is said when nothing is wrong any more.
const STORED_AGAIN: &str = "changes are stored again";

/// Whether changes can be stored, as of the last one.
pub(super) struct Health {
    /// Read for each request, which `fault` would be too slow for.
    read_only: AtomicBool,
    fault: watch::Sender<Option<BatchError>>,
}

impl Default for Health {
    fn default() -> Self {
        Self { read_only: AtomicBool::new(false), fault: watch::Sender::new(None) }
    }
}

impl Health {
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Notes how the last change went, before it is answered.
    pub(super) fn record_outcome<T>(&self, outcome: &Result<T, BatchError>) {
        let failure = outcome.as_ref().err().filter(|failure| failure.fault.is_some());
        let detached = failure.is_some_and(|it| it.fault == Some(StorageFault::Detached));
        self.read_only.store(detached, Ordering::Release);
        self.fault.send_if_modified(|last| {
            let changed = last.as_ref().map(|it| it.fault) != failure.map(|it| it.fault);
            if changed {
                match failure {
                    Some(failure) => tracing::error!("{}", describe_failure(failure)),
                    None => tracing::warn!("{STORED_AGAIN}"),
                }
                *last = failure.cloned();
            }
            changed
        });
    }

    /// Why changes are not stored, in one line for people.
    pub(super) fn fault_message(&self) -> Option<String> {
        self.fault.borrow().as_ref().map(describe_failure)
    }

    pub(super) fn events(&self) -> HealthEvents {
        HealthEvents(self.fault.subscribe())
    }
}

/// What becomes wrong with the storage of a service, and what is right again.
pub struct HealthEvents(watch::Receiver<Option<BatchError>>);

impl HealthEvents {
    /// Waits for the next, in one line for people; none when the service has ended.
    pub async fn next(&mut self) -> Option<String> {
        self.0.changed().await.ok()?;
        let failure = self.0.borrow_and_update().clone();
        Some(failure.map_or(STORED_AGAIN.to_owned(), |failure| describe_failure(&failure)))
    }
}

fn describe_failure(failure: &BatchError) -> String {
    let fault = failure.fault.map_or("the database failed", StorageFault::description);
    let file = failure.file.as_ref().map(|file| format!("{}: ", file.display()));
    format!("changes are not stored: {fault}: {}{}", file.unwrap_or_default(), failure.problem)
}
