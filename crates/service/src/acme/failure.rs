//! Why a certificate could not be obtained.

use std::error::Error as _;
use std::time::Duration;

use ginnel_gateway::tls::certificate_error::CertificateError;
use ginnel_store::StoreError;

use crate::certificates::ManagedFailure;

/// What stands before the types of errors (RFC 8555, section 6.7).
const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";
/// Errors that do not go away by themselves: the authority does not sign for such a name.
const LASTING: [&str; 4] = ["rejectedIdentifier", "unsupportedIdentifier", "malformed", "caa"];
/// How long it takes at least until an authority takes orders again that has had too many.
const RATE_LIMIT_PAUSE: Duration = Duration::from_secs(60 * 60);
/// The longest time between two attempts.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a certificate could not be obtained.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The authority refuses something, or cannot be reached.
    #[error("{}", describe_error(.0))]
    Acme(#[from] instant_acme::Error),
    /// The authority could not see that the name leads here.
    #[error("{message}")]
    Challenge { code: String, message: String },
    /// The authority offers no challenge that may be used.
    #[error("the authority offers none of the challenges that may be used")]
    NoChallenge,
    /// It took too long.
    #[error("the order was not fulfilled in time")]
    Late,
    /// What was obtained cannot be shown to visitors.
    #[error("the certificate {0}")]
    Unusable(String),
    /// Making a key, a request or the certificate of a challenge failed.
    #[error("cannot make a key or a request: {0}")]
    Making(#[from] rcgen::Error),
    /// TLS cannot be set up for a challenge.
    #[error(transparent)]
    Tls(#[from] CertificateError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OrderError {
    /// What went wrong with a challenge, as the authority says it.
    pub fn of_challenge(problem: &instant_acme::Problem) -> Self {
        let message = problem.detail.clone().unwrap_or_else(|| problem.to_string());
        Self::Challenge { code: code_of(problem), message }
    }

    /// The kind of the failure, in the words of RFC 8555 where it has one.
    pub fn code(&self) -> String {
        match self {
            Self::Acme(instant_acme::Error::Api(problem)) => code_of(problem),
            Self::Challenge { code, .. } => code.clone(),
            Self::Acme(_) | Self::Late => "connection".to_owned(),
            Self::NoChallenge => "unauthorized".to_owned(),
            Self::Unusable(_) | Self::Making(_) | Self::Tls(_) | Self::Store(_) => {
                "serverInternal".to_owned()
            }
        }
    }

    /// What is kept of it.
    pub fn to_managed_failure(&self) -> ManagedFailure {
        ManagedFailure { code: self.code(), message: self.to_string() }
    }
}

fn code_of(problem: &instant_acme::Problem) -> String {
    let kind = problem.r#type.as_deref().unwrap_or("serverInternal");
    kind.strip_prefix(TYPE_PREFIX).unwrap_or(kind).to_owned()
}

/// An error with its causes: the outer one alone says only that a request failed.
fn describe_error(error: &instant_acme::Error) -> String {
    if let instant_acme::Error::Api(problem) = error {
        return problem.detail.clone().unwrap_or_else(|| problem.to_string());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

/// How long after the last of so many failures a name is tried again.
pub(super) fn retry_after(base: Duration, failures: u32, code: &str) -> Duration {
    if LASTING.contains(&code) {
        return MAX_RETRY_AFTER;
    }
    let doubled = base.saturating_mul(1 << failures.saturating_sub(1).min(20));
    let least = if code == "rateLimited" { RATE_LIMIT_PAUSE } else { base };
    doubled.max(least).min(MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_doubles_up_to_a_day() {
        let minute = Duration::from_secs(60);
        let after = |failures| retry_after(minute, failures, "dns").as_secs();

        assert_eq!([after(1), after(2), after(4), after(30)], [60, 120, 480, 86_400]);
        assert_eq!(retry_after(minute, 1, "rateLimited"), RATE_LIMIT_PAUSE);
        assert_eq!(retry_after(minute, 1, "rejectedIdentifier"), MAX_RETRY_AFTER);
    }
}
