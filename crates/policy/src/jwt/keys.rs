//! Sets of keys as issuers publish them, and what they verify.
//!
//! A key verifies only what its type is made for: a public key is never used as a shared secret.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use ring::{hmac, signature::RsaParameters};
use serde::Deserialize;

use super::algorithm::Algorithm;

/// How many keys of a set are kept.
const KEYS: usize = 100;

/// The keys of an issuer.
#[derive(Debug, Default)]
pub struct KeySet(Vec<Key>);

/// A key.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point of a curve, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

/// A key as it is published.
#[derive(Deserialize)]
struct PublishedKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl KeySet {
    /// Reads a set; keys of types that nothing here verifies are left out.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(json)?;
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        Ok(Self(keys.filter_map(Key::from_published).take(KEYS).collect()))
    }

    /// Whether there is a key of this name; any key will do for no name.
    pub(in super::super) fn has_key(&self, id: Option<&str>) -> bool {
        self.0.iter().any(|key| key.has_id(id))
    }

    /// Whether one of the keys of this name made the signature.
    pub(in super::super) fn verifies_signature(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let mut keys = self.0.iter().filter(|key| key.has_id(id) && key.is_for(algorithm));
        keys.any(|key| key.material.verifies_signature(algorithm, message, signature))
    }
}

impl Key {
    fn from_published(published: PublishedKey) -> Option<Self> {
        if published.r#use.as_deref().is_some_and(|it| it != "sig") {
            return None;
        }
        let material = Material::from_published(&published)?;
        Some(Self { id: published.kid, algorithm: published.alg, material })
    }

    fn has_id(&self, id: Option<&str>) -> bool {
        id.is_none() || self.id.as_deref() == id
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithm.as_deref().is_none_or(|name| name == algorithm.name())
    }
}

impl Material {
    fn from_published(published: &PublishedKey) -> Option<Self> {
        let bytes = |text: &Option<String>| {
            let text = text.as_deref()?.trim_end_matches('=');
            BASE64_URL_SAFE_NO_PAD.decode(text).ok()
        };
        let point = || Some([&[4][..], &bytes(&published.x)?, &bytes(&published.y)?].concat());
        match (published.kty.as_str(), published.crv.as_deref()) {
            ("RSA", _) => {
                let (modulus, exponent) = (bytes(&published.n)?, bytes(&published.e)?);
                Some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => point().map(Self::P256),
            ("EC", Some("P-384")) => point().map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes(&published.x).map(Self::Ed25519),
            ("oct", _) => bytes(&published.k).filter(|key| !key.is_empty()).map(Self::Secret),
            _ => None,
        }
    }

    fn verifies_signature(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        use Algorithm as A;
        let public = |kind: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(kind, key).verify(message, signature).is_ok()
        };
        let shared = |kind: hmac::Algorithm, key: &[u8]| {
            hmac::verify(&hmac::Key::new(kind, key), message, signature).is_ok()
        };
        match (self, algorithm) {
            (Self::P256(key), A::Es256) => public(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Self::P384(key), A::Es384) => public(&signature::ECDSA_P384_SHA384_FIXED, key),
            (Self::Ed25519(key), A::EdDsa) => public(&signature::ED25519, key),
            (Self::Secret(key), A::Hs256) => shared(hmac::HMAC_SHA256, key),
            (Self::Secret(key), A::Hs384) => shared(hmac::HMAC_SHA384, key),
            (Self::Secret(key), A::Hs512) => shared(hmac::HMAC_SHA512, key),
            (Self::Rsa { modulus: n, exponent: e }, algorithm) => rsa_parameters(algorithm)
                .is_some_and(|kind| {
                    RsaPublicKeyComponents { n, e }.verify(kind, message, signature).is_ok()
                }),
            _ => false,
        }
    }
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}
