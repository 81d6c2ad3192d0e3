//! Providers that ask whether an address is right before they send anything else.

use http::Method;
use ring::hmac;
use serde_json::{Value, json};

use super::{Encoding, Provider, Signed, header_text};

/// The header with what Worldline wants to have back.
const WORLDLINE: &str = "x-gcs-webhooks-endpoint-verification";

/// The body of the response to a provider that asks for one: JSON, or a text.
///
/// `verified` says whether the provider has signed the request.
pub(in super::super) fn handshake_reply(
    provider: &Provider,
    secret: &str,
    signed: &Signed<'_>,
    verified: bool,
) -> Option<String> {
    match provider.name {
        "worldline" if signed.method == Method::GET => {
            header_text(signed.headers, WORLDLINE).map(str::to_owned)
        }
        "twitter" if verified && signed.method == Method::GET => twitter_reply(secret, signed.url),
        "xero" if verified => xero_reply(signed.body),
        "zoom" if verified => zoom_reply(secret, signed.body),
        _ => None,
    }
}

fn sign_content(secret: &str, content: &str, encoding: Encoding) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, content.as_bytes());
    String::from_utf8_lossy(&encoding.encode_bytes(signature.as_ref())).into_owned()
}

/// The token of the query, signed.
fn twitter_reply(secret: &str, url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let token = query.split('&').find_map(|pair| pair.strip_prefix("crc_token="))?;
    let signature = sign_content(secret, token, Encoding::Base64);
    Some(json!({"response_token": format!("sha256={signature}")}).to_string())
}

/// Nothing: an empty list of events asks for no more than a success.
fn xero_reply(body: &[u8]) -> Option<String> {
    let asked: Value = serde_json::from_slice(body).ok()?;
    asked.get("events")?.as_array()?.is_empty().then(String::new)
}

/// The token of the body, and the token signed.
fn zoom_reply(secret: &str, body: &[u8]) -> Option<String> {
    let asked: Value = serde_json::from_slice(body).ok()?;
    if asked.get("event")? != "endpoint.url_validation" {
        return None;
    }
    let token = asked.get("payload")?.get("plainToken")?.as_str()?;
    let encrypted = sign_content(secret, token, Encoding::Hex);
    Some(json!({"plainToken": token, "encryptedToken": encrypted}).to_string())
}
