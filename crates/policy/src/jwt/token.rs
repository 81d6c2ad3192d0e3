//! One token, taken apart.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value as Json;

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
    pub(in super::super) fn algorithm_name(&self) -> &str {
        self.header.get("alg").and_then(Json::as_str).unwrap_or_default()
    }

    /// The name of the key.
    pub(in super::super) fn key_id(&self) -> Option<&str> {
        self.header.get("kid").and_then(Json::as_str)
    }
}
