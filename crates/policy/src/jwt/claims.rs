//! What a token says of itself, whatever it is for: when it is good, who has issued it, and for whom
//! (RFC 7519, section 4.1).

use chrono::{DateTime, Utc};
use serde_json::Value as Json;

/// How far clocks may be apart, in seconds.
const LEEWAY: f64 = 60.0;

/// What the claims of a token are to be.
#[derive(Debug)]
pub(in super::super) struct ClaimRules<'a, T> {
    /// Who may have issued it; compared exactly.
    pub issuers: &'a [T],
    /// Whom it may be for; anyone when empty.
    pub audiences: &'a [T],
    /// Whether it must say when it expires.
    pub needs_expiry: bool,
    /// How long ago its subject may have logged in, in seconds; any time where there is none.
    pub max_age: Option<i64>,
}

/// Why a token whose signature is right is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum InvalidClaims {
    /// It is no longer good, or not yet.
    Time,
    /// It is from somebody else, or for somebody else.
    Claim,
}

impl<T: AsRef<str>> ClaimRules<'_, T> {
    /// Checks the claims of a token as of now.
    pub(in super::super) fn check(
        &self,
        claims: &Json,
        now: DateTime<Utc>,
    ) -> Result<(), InvalidClaims> {
        self.check_time(claims, now.timestamp_millis() as f64 / 1000.0)?;
        let is_one_of = |names: &[T], value: &Json| names.iter().any(|it| value == it.as_ref());
        let is_from = claims.get("iss").is_some_and(|issuer| is_one_of(self.issuers, issuer));
        let is_for = self.audiences.is_empty()
            || match claims.get("aud") {
                Some(Json::Array(all)) => all.iter().any(|it| is_one_of(self.audiences, it)),
                Some(one) => is_one_of(self.audiences, one),
                None => false,
            };
        if is_from && is_for { Ok(()) } else { Err(InvalidClaims::Claim) }
    }

    fn check_time(&self, claims: &Json, now: f64) -> Result<(), InvalidClaims> {
        let is_ahead = |time: Option<f64>| time.is_some_and(|time| time > now + LEEWAY);
        let is_over = |time: f64| now >= time + LEEWAY;
        let ends = time_claim(claims, "exp")?;
        let is_current = ends.map_or(!self.needs_expiry, |ends| !is_over(ends))
            && !is_ahead(time_claim(claims, "nbf")?)
            && !is_ahead(time_claim(claims, "iat")?);
        let is_recent = match self.max_age {
            Some(max_age) => {
                let logged_in = time_claim(claims, "auth_time")?.ok_or(InvalidClaims::Time)?;
                now <= logged_in + max_age as f64 + LEEWAY
            }
            None => true,
        };
        if is_current && is_recent { Ok(()) } else { Err(InvalidClaims::Time) }
    }
}

/// A time that is no number is a time that nothing is good at.
fn time_claim(claims: &Json, name: &str) -> Result<Option<f64>, InvalidClaims> {
    match claims.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(time) => match time.as_f64().filter(|time| time.is_finite()) {
            Some(time) => Ok(Some(time)),
            None => Err(InvalidClaims::Time),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn check(
        needs_expiry: bool,
        max_age: Option<i64>,
        audiences: &[&str],
        more: Json,
    ) -> Result<(), InvalidClaims> {
        let mut claims = json!({"iss": "https://issuer.example", "aud": ["other", "api"]});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let rules =
            ClaimRules { issuers: &["https://issuer.example"], audiences, needs_expiry, max_age };
        rules.check(&claims, DateTime::from_timestamp_millis(NOW * 1000 + 500).unwrap())
    }

    #[test]
    fn a_token_is_good_between_its_times_whatever_it_is_for() {
        for (claims, is_good) in [
            (json!({"exp": NOW - 59}), true),
            (json!({"exp": NOW - 60}), false),
            (json!({"exp": "soon"}), false),
            (json!({"exp": NOW + 9, "nbf": NOW + 60}), true),
            (json!({"exp": NOW + 9, "nbf": NOW + 61}), false),
            (json!({"exp": NOW + 9, "iat": NOW + 60}), true),
            (json!({"exp": NOW + 9, "iat": NOW + 61}), false),
            (json!({"exp": NOW + 9, "iat": true}), false),
        ] {
            let expected = if is_good { Ok(()) } else { Err(InvalidClaims::Time) };
            for needs_expiry in [false, true] {
                assert_eq!(
                    check(needs_expiry, None, &["api"], claims.clone()),
                    expected,
                    "{claims}"
                );
            }
        }
        assert_eq!(check(false, None, &[], json!({})), Ok(()));
        assert_eq!(check(true, None, &[], json!({})), Err(InvalidClaims::Time));
    }

    #[test]
    fn who_must_have_logged_in_lately_says_when() {
        let within = |more: Json| check(false, Some(10), &[], more);

        assert_eq!(within(json!({"auth_time": NOW - 69})), Ok(()));
        assert_eq!(within(json!({"auth_time": NOW - 71})), Err(InvalidClaims::Time));
        assert_eq!(within(json!({})), Err(InvalidClaims::Time));
    }

    #[test]
    fn a_token_is_from_an_issuer_and_for_an_audience() {
        for (audiences, claims, is_good) in [
            (&["api"][..], json!({}), true),
            (&["api", "x"], json!({"aud": "x"}), true),
            (&["x"], json!({}), false),
            (&["api"], json!({"aud": null}), false),
            (&[], json!({"aud": null}), true),
            (&[], json!({"iss": "https://issuer.example/"}), false),
            (&[], json!({"iss": ["https://issuer.example"]}), false),
        ] {
            let expected = if is_good { Ok(()) } else { Err(InvalidClaims::Claim) };
            assert_eq!(check(false, None, audiences, claims.clone()), expected, "{claims}");
        }
    }
}
