//! Reloads of the configuration: who asks for one, who performs it (the program that has read the
//! configuration), and what a service takes over.

use std::sync::OnceLock;

use tokio::sync::{mpsc, oneshot};

use super::store::StoreError;
use super::{Error, Options, Service};
use crate::api::remote::configuration::ConfigurationReload;
use crate::logging::ignore;

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

impl Service {
    /// The calls of `POST /configuration/reload` from now on; none where somebody else receives them
    /// already. While nobody does, the operation is refused.
    pub fn reload_requests(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.shared.reloads.receive()
    }

    /// Takes over those options that may change while it runs: the certificate, the rate limit, trusted
    /// proxies, ambiguous paths, timeouts and limits. Connections that are open keep what they began
    /// with; addresses, the database and secrets stay.
    ///
    /// # Errors
    /// When an option is wrong, or the certificate cannot be used; nothing has changed then.
    pub async fn reconfigure(&self, options: &Options) -> Result<(), Error> {
        options.check()?;
        let authority = self.shared.gateway.authority().clone();
        match options.certificate.clone() {
            None => authority.withdraw(),
            Some((chain, key)) => {
                let provide = move || authority.provide(&chain, &key);
                let provided = tokio::task::spawn_blocking(provide).await;
                provided.map_err(|_| StoreError::Panicked)??;
            }
        }
        // Nothing fails from here on.
        self.limit.set_caps(options.management_caps());
        self.shared.live.rcu(|live| live.changed(options));
        self.shared.gateway.reconfigure(&options.gateway_settings());
        if let Some((agents, settings)) = self.agents.as_ref().zip(options.agent_settings()) {
            agents.reconfigure(settings);
        }
        Ok(())
    }
}
