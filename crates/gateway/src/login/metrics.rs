//! What is counted of logins.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use chrono::Utc;
use http::StatusCode;

use ginnel_metrics::{Collect, Families};
use ginnel_policy::login::LoginOutcome;

use crate::login::Logins;
use crate::login::issuer::{LoginError, LoginResult};

/// How a login ends.
const OUTCOMES: [&str; 7] =
    ["admitted", "not_allowed", "refused", "unknown", "issuer", "store", "internal"];

/// How many logins have ended in which way, in the order of [`OUTCOMES`].
#[derive(Default)]
pub(super) struct LoginCounts([AtomicU64; OUTCOMES.len()]);

impl LoginCounts {
    /// Counts a visitor who has come back from an issuer.
    pub(super) fn count_outcome(&self, finished: &LoginResult<LoginOutcome>) {
        let outcome = outcome_label(finished);
        let place = OUTCOMES.iter().position(|it| *it == outcome);
        if let Some(count) = place.and_then(|place| self.0.get(place)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

fn outcome_label(finished: &LoginResult<LoginOutcome>) -> &'static str {
    match finished {
        Ok(LoginOutcome::Answered { response, .. }) if response.status == StatusCode::FORBIDDEN => {
            "not_allowed"
        }
        Ok(_) => "admitted",
        Err(LoginError::Refused(_)) => "refused",
        Err(LoginError::UnknownLogin | LoginError::Ended) => "unknown",
        Err(LoginError::Records(_)) => "store",
        Err(LoginError::Internal(_)) => "internal",
        Err(
            LoginError::Unreachable(_)
            | LoginError::OutOfReach(_)
            | LoginError::Busy
            | LoginError::Unusable(_)
            | LoginError::IdToken(_)
            | LoginError::TooLarge,
        ) => "issuer",
    }
}

impl Collect for Logins {
    fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Visitors who have come back from an issuer, by what came of it.";
        let mut family = families.counter("ginnel_logins", help)?;
        for (outcome, count) in OUTCOMES.iter().zip(&self.counts.0) {
            match count.load(Relaxed) {
                0 => {}
                count => family.write_counter(&[("outcome", outcome)], count)?,
            }
        }
        let help = "Sessions of visitors that this node has let in, and that have not ended.";
        let live = self.sessions.count_live(Utc::now().timestamp());
        families.gauge("ginnel_login_sessions", help)?.write_gauge(&[], live as f64)
    }
}
