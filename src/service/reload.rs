//! Who asks for a reload of the configuration, and who does it: the program that has read it.

use std::sync::OnceLock;

use tokio::sync::{mpsc, oneshot};

use crate::api::remote::configuration::ConfigurationReload;
use crate::logging::ignore;

/// What a reload has come to.
pub type ReloadOutcome = Result<ConfigurationReload, Vec<String>>;

/// Why nothing was reloaded.
#[derive(Debug)]
pub(super) enum ReloadError {
    /// Nobody reloads, as in a service that is part of another program.
    Nobody,
    /// The configuration is wrong.
    Problems(Vec<String>),
}

/// A wish for a reload; one after another is served.
#[derive(Debug)]
pub struct ReloadRequest {
    reply: oneshot::Sender<ReloadOutcome>,
}

impl ReloadRequest {
    /// Says what it has come to.
    pub fn answer(self, outcome: ReloadOutcome) {
        ignore(self.reply.send(outcome), "who has asked may have gone");
    }
}

/// The way from those who ask for a reload to the one who does it.
#[derive(Debug, Default)]
pub(super) struct ReloadRequests(OnceLock<mpsc::Sender<ReloadRequest>>);

impl ReloadRequests {
    /// The requests from now on; none where somebody else has them already.
    pub fn receive(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        let (sender, receiver) = mpsc::channel(1);
        self.0.set(sender).ok().map(|()| receiver)
    }

    /// Asks for a reload, and waits until it is done.
    pub async fn ask(&self) -> Result<ConfigurationReload, ReloadError> {
        let sender = self.0.get().ok_or(ReloadError::Nobody)?;
        let (reply, outcome) = oneshot::channel();
        sender.send(ReloadRequest { reply }).await.map_err(|_| ReloadError::Nobody)?;
        outcome.await.map_err(|_| ReloadError::Nobody)?.map_err(ReloadError::Problems)
    }
}
