//! Which keys are needed, and for how long they are good.

use std::time::Duration;

use super::super::published::Lifetime;

/// How long keys are good for checks of tokens: what an issuer has taken back counts for some minutes at most.
pub const KEYS_OF_TOKENS: Lifetime = Lifetime {
    refresh: Duration::from_secs(10 * 60),
    max_age: Duration::from_secs(15 * 60),
    after_failure: Duration::from_secs(30),
    after_missing: Duration::from_secs(30),
};

/// How long they are good for logins, where visitors wait, and issuers say at once whether a code is good.
pub const KEYS_OF_LOGINS: Lifetime = Lifetime {
    refresh: Duration::from_secs(10 * 60),
    max_age: Duration::from_secs(24 * 60 * 60),
    after_failure: Duration::from_secs(5),
    after_missing: Duration::from_secs(10),
};

/// The keys of an issuer that a token is verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    /// Where they are.
    pub url: String,
    /// Whether those that are known have not verified it.
    pub is_missing: bool,
    /// For how long they are good.
    pub lifetime: Lifetime,
}
