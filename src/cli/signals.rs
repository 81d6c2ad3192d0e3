//! The signals that ask the process to end.

use super::failure::{Exit, Failure};

/// The signals that ask the process to end.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Listens from now on.
    pub fn new() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Exit::Failed, format!("no signals: {error}")))
        };
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Listens from now on.
    pub fn new() -> Result<Self, Failure> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            complain(&error.to_string());
        }
    }
}
