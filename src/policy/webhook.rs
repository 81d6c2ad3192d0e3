//! Signatures of webhooks.
//!
//! Traffic policy sheet, section 6: what each provider signs, and where it puts the signature.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use percent_encoding::percent_decode;
use ring::digest::{SHA256, digest};
use ring::hmac;
use subtle::ConstantTimeEq;

use super::expression::hex;
use super::headers::single;

/// How old a signature may be, and how far in the future, in seconds.
const TOLERANCE: i64 = 5 * 60;

/// Who signs requests.
///
/// Traffic policy sheet, section 6. Providers that sign alike share a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the provider of that name")]
pub enum Provider {
    CircleCi,
    Dropbox,
    GitHub,
    GitLab,
    Heroku,
    Intercom,
    Linear,
    PagerDuty,
    Sentry,
    Shopify,
    Slack,
    Stripe,
    Svix,
    Twilio,
    Typeform,
    Zendesk,
    Zoom,
}

/// Who signs, by the names in documents.
pub(super) const PROVIDERS: &[(&str, Provider)] = &[
    ("circleci", Provider::CircleCi),
    ("clerk", Provider::Svix),
    ("dropbox", Provider::Dropbox),
    ("facebook_graph_api", Provider::GitHub),
    ("facebook_messenger", Provider::GitHub),
    ("github", Provider::GitHub),
    ("gitlab", Provider::GitLab),
    ("heroku", Provider::Heroku),
    ("instagram", Provider::GitHub),
    ("intercom", Provider::Intercom),
    ("linear", Provider::Linear),
    ("pagerduty", Provider::PagerDuty),
    ("sentry", Provider::Sentry),
    ("shopify", Provider::Shopify),
    ("slack", Provider::Slack),
    ("stripe", Provider::Stripe),
    ("svix", Provider::Svix),
    ("twilio", Provider::Twilio),
    ("typeform", Provider::Typeform),
    ("whatsapp", Provider::GitHub),
    ("zendesk", Provider::Zendesk),
    ("zoom", Provider::Zoom),
];

/// A request that a provider may have signed.
#[derive(Debug)]
pub struct Signed<'r> {
    /// Its headers.
    pub headers: &'r HeaderMap,
    /// All of its body.
    pub body: &'r Bytes,
    /// The URL that it was sent to.
    pub url: &'r str,
}

impl Provider {
    /// The provider of a name.
    pub fn named(name: &str) -> Option<Self> {
        PROVIDERS.iter().find(|(known, _)| *known == name).map(|(_, provider)| *provider)
    }

    /// Whether the provider has signed the request, and lately where it says when.
    pub fn verifies(self, secret: &str, signed: &Signed<'_>, now: DateTime<Utc>) -> bool {
        self.check(secret, signed, now).unwrap_or(false)
    }

    /// None where something is missing.
    fn check(self, secret: &str, signed: &Signed<'_>, now: DateTime<Utc>) -> Option<bool> {
        let header = |name: &str| single(signed.headers, name)?.to_str().ok();
        let recent = |seconds: &str| is_recent(seconds, now);
        let (key, body) = (secret.as_bytes(), signed.body.as_ref());
        Some(match self {
            Self::GitHub => hex_is(
                header("x-hub-signature-256")?.strip_prefix("sha256=")?,
                &sha256(key, &[body]),
            ),
            Self::GitLab => same(header("x-gitlab-token")?.as_bytes(), key),
            Self::Slack => {
                let time = header("x-slack-request-timestamp")?;
                let expected = sha256(key, &[b"v0:", time.as_bytes(), b":", body]);
                recent(time) && hex_is(header("x-slack-signature")?.strip_prefix("v0=")?, &expected)
            }
            Self::Stripe => stripe(header("stripe-signature")?, key, body, now)?,
            Self::Shopify => base64_is(header("x-shopify-hmac-sha256")?, &sha256(key, &[body])),
            Self::Svix => {
                let (id, time) = (header("svix-id")?, header("svix-timestamp")?);
                recent(time) && svix(header("svix-signature")?, secret, &[id, time], body)?
            }
            Self::Twilio => {
                base64_is(header("x-twilio-signature")?, &twilio(key, signed.url, body))
            }
            Self::Intercom => {
                hex_is(header("x-hub-signature")?.strip_prefix("sha1=")?, &sha1(key, &[body]))
            }
            Self::Linear => hex_is(header("linear-signature")?, &sha256(key, &[body])),
            Self::Sentry => hex_is(header("sentry-hook-signature")?, &sha256(key, &[body])),
            Self::Dropbox => hex_is(header("x-dropbox-signature")?, &sha256(key, &[body])),
            Self::PagerDuty => several(header("x-pagerduty-signature")?, &sha256(key, &[body])),
            Self::CircleCi => several(header("circleci-signature")?, &sha256(key, &[body])),
            Self::Typeform => {
                let signature = header("typeform-signature")?.strip_prefix("sha256=")?;
                base64_is(signature, &sha256(key, &[body]))
            }
            Self::Heroku => base64_is(header("heroku-webhook-hmac-sha256")?, &sha256(key, &[body])),
            Self::Zendesk => {
                let time = header("x-zendesk-webhook-signature-timestamp")?;
                let expected = sha256(key, &[time.as_bytes(), body]);
                let lately = DateTime::parse_from_rfc3339(time)
                    .map_or_else(|_| recent(time), |time| is_near(time.timestamp(), now));
                lately && base64_is(header("x-zendesk-webhook-signature")?, &expected)
            }
            Self::Zoom => {
                let time = header("x-zm-request-timestamp")?;
                let expected = sha256(key, &[b"v0:", time.as_bytes(), b":", body]);
                recent(time) && hex_is(header("x-zm-signature")?.strip_prefix("v0=")?, &expected)
            }
        })
    }
}

/// What a provider wants to hear that asks whether the address is right: JSON.
pub(super) fn challenge(
    provider: Provider,
    secret: &str,
    body: &Bytes,
) -> Option<serde_json::Value> {
    if provider != Provider::Zoom {
        return None;
    }
    let asked: serde_json::Value = serde_json::from_slice(body).ok()?;
    if asked.get("event")? != "endpoint.url_validation" {
        return None;
    }
    let token = asked.get("payload")?.get("plainToken")?.as_str()?;
    let encrypted = hex(sha256(secret.as_bytes(), &[token.as_bytes()]).as_ref());
    Some(serde_json::json!({"plainToken": token, "encryptedToken": encrypted}))
}

fn sha256(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    sign(hmac::HMAC_SHA256, key, parts)
}

fn sha1(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key, parts)
}

fn sign(algorithm: hmac::Algorithm, key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

fn is_recent(seconds: &str, now: DateTime<Utc>) -> bool {
    seconds.parse().is_ok_and(|seconds| is_near(seconds, now))
}

fn is_near(seconds: i64, now: DateTime<Utc>) -> bool {
    seconds.abs_diff(now.timestamp()) <= TOLERANCE.unsigned_abs()
}

/// Compares in a time that says nothing of where the two differ, nor of their lengths.
fn same(one: &[u8], other: &[u8]) -> bool {
    digest(&SHA256, one).as_ref().ct_eq(digest(&SHA256, other).as_ref()).into()
}

fn hex_is(signature: &str, expected: &hmac::Tag) -> bool {
    same(signature.to_ascii_lowercase().as_bytes(), hex(expected.as_ref()).as_bytes())
}

fn base64_is(signature: &str, expected: &hmac::Tag) -> bool {
    same(signature.as_bytes(), BASE64_STANDARD.encode(expected).as_bytes())
}

/// Several signatures, one of which must be right.
fn several(header: &str, expected: &hmac::Tag) -> bool {
    let mut signatures = header.split(',').filter_map(|one| one.trim().strip_prefix("v1="));
    signatures.any(|one| hex_is(one, expected))
}

fn stripe(header: &str, key: &[u8], body: &[u8], now: DateTime<Utc>) -> Option<bool> {
    let fields = || header.split(',').filter_map(|field| field.trim().split_once('='));
    let (_, time) = fields().find(|(name, _)| *name == "t")?;
    let expected = sha256(key, &[time.as_bytes(), b".", body]);
    let mut signatures = fields().filter(|(name, _)| *name == "v1");
    Some(is_recent(time, now) && signatures.any(|(_, one)| hex_is(one, &expected)))
}

fn svix(header: &str, secret: &str, [id, time]: &[&str; 2], body: &[u8]) -> Option<bool> {
    let secret = secret.strip_prefix("whsec_").unwrap_or(secret).trim_end_matches('=');
    let key = BASE64_STANDARD_NO_PAD.decode(secret).ok()?;
    let expected = sha256(&key, &[id.as_bytes(), b".", time.as_bytes(), b".", body]);
    let mut signatures = header.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    Some(signatures.any(|one| base64_is(one, &expected)))
}

/// The URL, and then the names and values of the form, sorted by name.
fn twilio(key: &[u8], url: &str, body: &[u8]) -> hmac::Tag {
    let plain = |text: &[u8]| {
        let spaced: Vec<u8> = text.iter().map(|it| if *it == b'+' { b' ' } else { *it }).collect();
        percent_decode(&spaced).collect::<Vec<u8>>()
    };
    let mut pairs: Vec<_> = body
        .split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (plain(&pair[..end]), plain(pair.get(end + 1..).unwrap_or_default()))
        })
        .collect();
    pairs.sort();
    let mut message = url.as_bytes().to_vec();
    for (name, value) in pairs {
        message.extend(name);
        message.extend(value);
    }
    sha1(key, &[&message])
}
