//! What rules may ask of the world around them.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use chrono::{DateTime, Utc};

use super::ip_rules::IpRules;
use super::login::{OauthApplication, OauthProvider};
use super::secrets::SecretName;
use super::state::PolicyState;

/// What rules may ask of the world around them.
pub trait World: Send + Sync {
    /// The rules of an IP policy; none for a policy that is gone.
    fn ip_policy(&self, id: &str) -> Arc<IpRules>;

    /// The value of a secret; none where there is no such secret.
    fn secret(&self, name: &SecretName) -> Option<Arc<str>>;

    /// What is known of a provider that a document calls by its name.
    fn oauth_application(&self, provider: OauthProvider) -> Arc<OauthApplication> {
        Arc::new(OauthApplication::for_provider(provider))
    }

    /// What requests share.
    fn state(&self) -> &PolicyState;

    /// The time of day.
    fn now(&self) -> DateTime<Utc> {
        SystemTime::now().into()
    }

    /// The time that only goes forward.
    fn instant(&self) -> Instant {
        Instant::now()
    }
}
