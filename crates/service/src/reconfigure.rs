//! What a running service takes over from new options.

use tokio::sync::mpsc;

use super::reload::ReloadRequest;
use super::store::StoreError;
use super::{Error, Options, Service};

impl Service {
    /// The calls of `POST /configuration/reload` from now on; none where somebody else receives them
    /// already. While nobody does, the operation is refused.
    pub fn reload_requests(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.shared.reloads.take_receiver()
    }

    /// Takes over those options that may change while it runs: the certificate, clients at providers of OAuth, the
    /// rate limit, trusted proxies, ambiguous paths, timeouts and limits, how long audit events are kept and how long the
    /// service drains. Connections that are open keep what they began
    /// with; addresses, the database and secrets stay.
    ///
    /// # Errors
    /// When an option is wrong, or the certificate cannot be used; nothing has changed then.
    pub async fn reconfigure(&self, options: &Options) -> Result<(), Error> {
        options.check()?;
        let applications = options.oauth.applications()?;
        let authority = self.shared.gateway.authority().clone();
        match options.certificate.files() {
            None => authority.withdraw_certificate(),
            Some((chain, key)) => {
                let provide = move || authority.provide_certificate(&chain, &key);
                let provided = ginnel_base::tasks::spawn_blocking(provide).await;
                provided.map_err(|_| StoreError::Panicked)??;
            }
        }
        // Nothing fails from here on.
        self.limit.set_caps(options.management.connection_caps());
        self.shared.live.rcu(|live| live.with_options(options.live()));
        self.shared.audit.set_retention(options.audit.retention);
        for provider in self.shared.gateway.oauth_applications().replace_all(applications) {
            tracing::warn!(
                setting = provider.setting(),
                "is gone: endpoints with a login by that client answer 500 (code 3452) from now on"
            );
        }
        self.shared.gateway.reconfigure(&options.gateway);
        if let Some(agents) = &self.agents {
            agents.reconfigure(options.agents.clone());
        }
        Ok(())
    }
}
