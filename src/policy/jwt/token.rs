//! One token, taken apart.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde_json::Value as Json;

/// How far clocks may be apart, in seconds.
const LEEWAY: f64 = 60.0;

/// How long a token may be, in bytes.
const LENGTH: usize = 16 << 10;

/// A token whose signature nobody has looked at yet.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct UnverifiedToken {
    pub header: Json,
    pub payload: Json,
    /// What is signed.
    pub message: String,
    pub signature: Vec<u8>,
}

/// Why a token whose signature is right is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum InvalidClaims {
    /// It is no longer good, or not yet.
    Time,
    /// It is from somebody else, or for somebody else.
    Claim,
}

impl UnverifiedToken {
    /// Takes a token apart; none if it is none.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        if text.len() > LENGTH {
            return None;
        }
        let (message, signature) = text.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let object = |part: &str| {
            let json: Json = serde_json::from_slice(&decode(part)?).ok()?;
            json.is_object().then_some(json)
        };
        let (header, payload) = (object(header)?, object(payload)?);
        // An extension that must be understood is not.
        if header.get("crit").is_some() {
            return None;
        }
        let signature = decode(signature)?;
        Some(Self { header, payload, message: message.to_owned(), signature })
    }

    /// The name of the algorithm.
    pub(in super::super) fn algorithm(&self) -> &str {
        self.header.get("alg").and_then(Json::as_str).unwrap_or_default()
    }

    /// The name of the key.
    pub(in super::super) fn key(&self) -> Option<&str> {
        self.header.get("kid").and_then(Json::as_str)
    }

    /// Whether the token is good now, from one of these issuers, and for one of these audiences.
    pub(in super::super) fn check(
        &self,
        now: DateTime<Utc>,
        issuers: &[String],
        audiences: &[String],
    ) -> Result<(), InvalidClaims> {
        if !self.is_current(now.timestamp_millis() as f64 / 1000.0) {
            return Err(InvalidClaims::Time);
        }
        let issuer = self.payload.get("iss").and_then(Json::as_str);
        let from = issuer.is_some_and(|issuer| issuers.iter().any(|it| it == issuer));
        let is_for = |audience: &Json| audiences.iter().any(|it| audience == it.as_str());
        let to = match self.payload.get("aud") {
            _ if audiences.is_empty() => true,
            Some(Json::Array(all)) => all.iter().any(is_for),
            Some(one) => is_for(one),
            None => false,
        };
        if from && to { Ok(()) } else { Err(InvalidClaims::Claim) }
    }

    /// A time that is no number is a time that nothing is good at.
    fn is_current(&self, now: f64) -> bool {
        let time = |name: &str| match self.payload.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(time) => time.as_f64().map(Some).ok_or(()),
        };
        let (Ok(until), Ok(from)) = (time("exp"), time("nbf")) else { return false };
        until.is_none_or(|until| now < until + LEEWAY)
            && from.is_none_or(|from| now >= from - LEEWAY)
    }
}
