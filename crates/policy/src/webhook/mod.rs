//! Signatures of webhooks.
//!
//! `providers` says who signs and how; a new provider is a line there.

mod content;
mod handshake;
mod providers;
mod scheme;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use chrono::{DateTime, NaiveDateTime, Utc};
use http::{HeaderMap, Method};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use subtle::ConstantTimeEq;

use super::expression::hex;
use super::headers::single_header;

pub(super) use self::handshake::handshake_reply;
pub use self::providers::PROVIDERS;
pub use self::scheme::SignatureScheme;
use self::scheme::{Encoding, Proof, SecretForm, Time};

/// Base64 with or without the padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Numbers above this are milliseconds, not seconds: seconds of the year 5138.
const MILLISECONDS: i64 = 100_000_000_000;

/// Who signs requests.
#[derive(Debug)]
pub struct Provider {
    /// The name in documents.
    pub name: &'static str,
    /// How it signs: in one of these ways.
    pub schemes: &'static [SignatureScheme],
}

/// A request that a provider may have signed.
#[derive(Debug)]
pub struct Signed<'r> {
    /// Its method.
    pub method: &'r Method,
    /// Its headers.
    pub headers: &'r HeaderMap,
    /// All of its body.
    pub body: &'r Bytes,
    /// The URL that it was sent to.
    pub url: &'r str,
}

/// The bytes of a public key, uncompressed: what stands before says which curve it is of.
const POINT: usize = 65;

/// The value that holds a signature, and what else it says.
struct Envelope<'s> {
    value: Cow<'s, str>,
    /// The time, as it is written.
    time: Option<Cow<'s, str>>,
}

impl Provider {
    /// The provider of a name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
    }

    /// Whether a secret may be one of the provider's.
    pub fn accepts_secret(&self, secret: &str) -> bool {
        let is_key = |key: Cow<'_, [u8]>, proof: Proof| match proof {
            Proof::Ecdsa => key.len() >= POINT,
            _ => !key.is_empty(),
        };
        let mut reads = self
            .schemes
            .iter()
            .map(|it| it.key.decode_secret(secret).is_some_and(|key| is_key(key, it.proof)));
        self.schemes.is_empty() || reads.any(|reads| reads)
    }

    /// What its secrets are, for a sentence.
    pub fn secret_form(&self) -> &'static str {
        match self.schemes.first().map(|scheme| (scheme.key, scheme.proof)) {
            Some((SecretForm::UserPassword, _)) => "a name and a password with :: between them",
            Some((_, Proof::Ecdsa)) => "a public key on P-256, in base64",
            Some((SecretForm::Base64, _)) => "a key in base64",
            _ => "a text",
        }
    }

    /// Whether the provider has signed the request, and lately where it says when.
    pub fn verifies_request(&self, secret: &str, signed: &Signed<'_>, now: DateTime<Utc>) -> bool {
        let mut verdicts =
            self.schemes.iter().map(|scheme| scheme.verify_request(secret, signed, now));
        verdicts.any(|verdict| verdict == Some(true))
    }
}

impl SignatureScheme {
    /// None where something is missing.
    fn verify_request(
        &self,
        secret: &str,
        signed: &Signed<'_>,
        now: DateTime<Utc>,
    ) -> Option<bool> {
        let envelope = self.read_envelope(signed)?;
        if let Some(time) = &envelope.time
            && !self.is_recent(time, now)
        {
            return Some(false);
        }
        // Anybody can sign with an empty key.
        let key = self.key.decode_secret(secret).filter(|key| !key.is_empty())?;
        let content = self.signed_content(signed, &envelope)?;
        let signatures = envelope.value.split(self.separator);
        let mut signatures =
            signatures.filter_map(|one| one.trim_matches(' ').strip_prefix(self.prefix));
        if self.proof == Proof::Ecdsa {
            let content = content.concat();
            return Some(signatures.any(|one| is_signed_by(&key, &content, one)));
        }
        let expected = self.encoding.encode_bytes(&self.proof.compute_signature(&key, &content));
        Some(signatures.any(|one| self.encoding.is_same(one, &expected)))
    }

    fn read_envelope<'s>(&self, signed: &'s Signed<'_>) -> Option<Envelope<'s>> {
        let value = match self.header {
            "" => content::mailgun_envelope(signed.body)?.into(),
            name => Cow::Borrowed(header_text(signed.headers, name)?),
        };
        let time = match self.time {
            Time::None => None,
            Time::Header(name) => Some(Cow::Borrowed(header_text(signed.headers, name)?)),
            Time::Field(prefix) => Some(content::find_prefixed(&value, prefix)?.to_owned().into()),
        };
        Some(Envelope { value, time })
    }

    fn is_recent(&self, time: &str, now: DateTime<Utc>) -> bool {
        let Some(time) = unix_seconds(time) else { return false };
        time.abs_diff(now.timestamp()) <= self.tolerance
    }
}

impl SecretForm {
    fn decode_secret(self, secret: &str) -> Option<Cow<'_, [u8]>> {
        Some(match self {
            Self::Text => secret.as_bytes().into(),
            Self::Base64 => {
                LENIENT.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()?.into()
            }
            // What is sent as a name and a password has a colon between them.
            Self::UserPassword if !secret.contains(':') => return None,
            Self::UserPassword => secret.replacen("::", ":", 1).into_bytes().into(),
        })
    }
}

impl Proof {
    /// The bytes of the signature.
    fn compute_signature(self, key: &[u8], content: &[Cow<'_, [u8]>]) -> Vec<u8> {
        let sign = |algorithm| {
            let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
            content.iter().for_each(|piece| context.update(piece));
            context.sign().as_ref().to_vec()
        };
        match self {
            Self::Sha1 => sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Self::Sha256 => sign(hmac::HMAC_SHA256),
            Self::Sha512 => sign(hmac::HMAC_SHA512),
            // A public key makes no signatures.
            Self::Ecdsa => Vec::new(),
            Self::Secret => key.to_vec(),
        }
    }
}

impl Encoding {
    fn encode_bytes(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => bytes.to_vec(),
            Self::Hex => hex(bytes).into_bytes(),
            Self::Base64 => BASE64_STANDARD.encode(bytes).into_bytes(),
        }
    }

    fn is_same(self, signature: &str, expected: &[u8]) -> bool {
        match self {
            Self::Hex => constant_time_eq(signature.to_ascii_lowercase().as_bytes(), expected),
            _ => constant_time_eq(signature.as_bytes(), expected),
        }
    }
}

/// The value of a header that is there once.
fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    single_header(headers, name)?.to_str().ok()
}

/// Seconds since 1970 of a time in seconds, in milliseconds or in ISO 8601.
fn unix_seconds(time: &str) -> Option<i64> {
    match time.parse::<i64>() {
        Ok(number) if number.unsigned_abs() > MILLISECONDS.unsigned_abs() => Some(number / 1000),
        Ok(number) => Some(number),
        Err(_) => DateTime::parse_from_rfc3339(time)
            .map(|time| time.timestamp())
            .or_else(|_| {
                let time = NaiveDateTime::parse_from_str(time, "%Y-%m-%dT%H:%M:%S%.f");
                time.map(|time| time.and_utc().timestamp())
            })
            .ok(),
    }
}

/// Compares in a time that says nothing of where the two differ, nor of their lengths.
fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    digest(&SHA256, one).as_ref().ct_eq(digest(&SHA256, other).as_ref()).into()
}

/// Whether content is signed by the holder of a public key on P-256: its point is the end of the DER.
fn is_signed_by(key: &[u8], content: &[u8], signature: &str) -> bool {
    let point = key.len().checked_sub(POINT).and_then(|start| key.get(start..));
    let Some((point, signature)) = point.zip(LENIENT.decode(signature).ok()) else { return false };
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(content, &signature).is_ok()
}

#[cfg(test)]
mod tests;
