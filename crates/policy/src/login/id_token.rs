//! What an ID token must be to be believed (OpenID Connect Core, section 3.1.3.7).

use chrono::{DateTime, Utc};
use serde_json::Value as Json;

use super::super::jwt::algorithm::{ALGORITHMS, Algorithm};
use super::super::jwt::{ClaimRules, InvalidClaims, KeySet, UnverifiedToken};

/// What an ID token is to say.
#[derive(Debug, Clone)]
pub struct ExpectedToken<'a> {
    /// Who has issued it.
    pub issuer: &'a str,
    /// Whom it is for.
    pub client_id: &'a str,
    /// What was asked with; none where it need not say so, which is when it replaces another one.
    pub nonce: Option<&'a str>,
    /// How long ago its subject may have logged in, in seconds; any time where there is none.
    pub max_age: Option<i64>,
    /// The time of day.
    pub now: DateTime<Utc>,
}

/// Why an ID token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// It is no token.
    #[error("the ID token is malformed")]
    Malformed,
    /// It is signed with a secret, or not at all.
    #[error("the ID token is not signed with a key of the issuer")]
    Algorithm,
    /// The key is none of those that are known.
    #[error("the key of the ID token is not one of the issuer's")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// It is from somebody else, or for somebody else.
    #[error("the ID token is from another issuer, or for another client")]
    Claims,
    /// It has expired, or is not valid yet.
    #[error("the ID token has expired, or is not valid yet")]
    Time,
    /// It was not issued for this login.
    #[error("the ID token was not issued for this login")]
    Nonce,
}

/// Checks an ID token; its claims.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn verify_id_token(
    text: &str,
    keys: &KeySet,
    expected: &ExpectedToken<'_>,
) -> Result<Json, IdTokenError> {
    let token = UnverifiedToken::parse(text).ok_or(IdTokenError::Malformed)?;
    let name = token.algorithm_name();
    let known = ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, known)| *known);
    let algorithm = known.filter(|it| is_public(*it)).ok_or(IdTokenError::Algorithm)?;
    if !keys.has_key(token.key_id()) {
        return Err(IdTokenError::UnknownKey);
    }
    if !keys.verifies_signature(
        token.key_id(),
        algorithm,
        token.message.as_bytes(),
        &token.signature,
    ) {
        return Err(IdTokenError::Signature);
    }
    let rules = ClaimRules {
        issuers: &[expected.issuer],
        audiences: &[expected.client_id],
        needs_expiry: true,
        max_age: expected.max_age,
    };
    rules.check(&token.payload, expected.now)?;
    check_party(&token.payload, expected)?;
    let nonce = token.payload.get("nonce").and_then(Json::as_str);
    if expected.nonce.is_some() && nonce != expected.nonce {
        return Err(IdTokenError::Nonce);
    }
    Ok(token.payload)
}

fn is_public(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512)
}

/// A token for several must say who has asked for it.
fn check_party(claims: &Json, expected: &ExpectedToken<'_>) -> Result<(), IdTokenError> {
    let is_shared = claims.get("aud").and_then(Json::as_array).is_some_and(|all| all.len() > 1);
    let is_client = match claims.get("azp") {
        None | Some(Json::Null) => !is_shared,
        Some(party) => party == expected.client_id,
    };
    if is_client { Ok(()) } else { Err(IdTokenError::Claims) }
}

impl From<InvalidClaims> for IdTokenError {
    fn from(invalid: InvalidClaims) -> Self {
        match invalid {
            InvalidClaims::Time => Self::Time,
            InvalidClaims::Claim => Self::Claims,
        }
    }
}
