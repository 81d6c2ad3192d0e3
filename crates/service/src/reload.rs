//! Reloads of the configuration: who asks for one, and who performs it, which is the program that has
//! read the configuration.

use std::sync::OnceLock;

use tokio::sync::{mpsc, oneshot};

use ginnel_api::remote::configuration::ConfigurationReload;
use ginnel_base::logging::ignore;

/// The result of a reload.
pub type ReloadOutcome = Result<ConfigurationReload, Vec<String>>;

/// Why nothing was reloaded.
#[derive(Debug)]
pub(super) enum ReloadError {
    /// Nobody reloads, as in a service that is part of another program.
    Nobody,
    /// The configuration is wrong.
    Problems(Vec<String>),
}

/// A call that asks for a reload; they are served one after another.
#[derive(Debug)]
pub struct ReloadRequest {
    reply: oneshot::Sender<ReloadOutcome>,
}

impl ReloadRequest {
    /// Reports the result.
    pub fn respond(self, outcome: ReloadOutcome) {
        ignore(self.reply.send(outcome), "the caller may have gone");
    }
}

/// The way from those who ask for a reload to the one who does it.
#[derive(Debug, Default)]
pub(super) struct ReloadRequests(OnceLock<mpsc::Sender<ReloadRequest>>);

impl ReloadRequests {
    /// The requests from now on; none where somebody else has them already.
    pub fn take_receiver(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        let (sender, receiver) = mpsc::channel(1);
        self.0.set(sender).ok().map(|()| receiver)
    }

    /// Asks for a reload, and waits until it is done.
    pub async fn request_reload(&self) -> Result<ConfigurationReload, ReloadError> {
        let sender = self.0.get().ok_or(ReloadError::Nobody)?;
        let (reply, outcome) = oneshot::channel();
        sender.send(ReloadRequest { reply }).await.map_err(|_| ReloadError::Nobody)?;
        outcome.await.map_err(|_| ReloadError::Nobody)?.map_err(ReloadError::Problems)
    }
}
