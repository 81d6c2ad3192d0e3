//! What visitors carry for the service, and can neither read nor change.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::Prk;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::login::issuer::{LoginError, LoginResult};

/// How much of a sealed text makes its key one that no other text has, in bytes.
const SALT_BYTES: usize = 16;

/// Seals what visitors carry; each text with a key of its own, so that nonces cannot repeat.
pub(super) struct Seal(pub Prk);

impl Seal {
    /// A text that says this to whoever has the key and names the same purpose and binding.
    pub(super) fn seal_content(
        &self,
        purpose: &str,
        binding: &str,
        content: &impl Serialize,
    ) -> LoginResult<String> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|error| LoginError::Internal(error.to_string()))?;
        let mut bytes =
            serde_json::to_vec(content).map_err(|error| LoginError::Internal(error.to_string()))?;
        let key =
            self.derive_key(purpose, &salt).ok_or(LoginError::Internal("no key".to_owned()))?;
        let sealed = key.seal_in_place_append_tag(zero_nonce(), Aad::from(binding), &mut bytes);
        sealed.map_err(|error| LoginError::Internal(error.to_string()))?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&salt[..], &bytes].concat()))
    }

    /// What a text says; none where it was not sealed for this purpose and binding.
    pub(super) fn open_text<T: DeserializeOwned>(
        &self,
        purpose: &str,
        binding: &str,
        text: &str,
    ) -> Option<T> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (salt, sealed) = bytes.split_at_checked(SALT_BYTES)?;
        let mut sealed = sealed.to_vec();
        let key = self.derive_key(purpose, salt)?;
        let opened = key.open_in_place(zero_nonce(), Aad::from(binding), &mut sealed).ok()?;
        serde_json::from_slice(opened).ok()
    }

    fn derive_key(&self, purpose: &str, salt: &[u8]) -> Option<LessSafeKey> {
        let info = [b"login ", purpose.as_bytes(), b" ", salt];
        let key: UnboundKey = self.0.expand(&info, &AES_256_GCM).ok()?.into();
        Some(LessSafeKey::new(key))
    }
}

fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Random text that nobody can guess.
pub(super) fn random_text() -> LoginResult<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|error| LoginError::Internal(error.to_string()))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use ring::hkdf::{HKDF_SHA256, Salt};

    use super::*;

    fn seal(secret: &[u8]) -> Seal {
        Seal(Salt::new(HKDF_SHA256, b"").extract(secret))
    }

    #[test]
    fn a_text_opens_for_its_purpose_and_binding_alone() {
        let text = seal(b"1").seal_content("session", "a", &"secret").unwrap();
        let open = |secret: &[u8], purpose, binding, text: &str| {
            seal(secret).open_text::<String>(purpose, binding, text)
        };

        assert_eq!(open(b"1", "session", "a", &text).as_deref(), Some("secret"));
        assert_eq!(open(b"2", "session", "a", &text), None, "another key");
        assert_eq!(open(b"1", "login", "a", &text), None, "another purpose");
        assert_eq!(open(b"1", "session", "b", &text), None, "another binding");
        for at in [0, 20, text.len() - 2] {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(b"1", "session", "a", &changed), None, "changed at {at}");
        }
        assert_eq!(open(b"1", "session", "a", ""), None);
    }

    #[test]
    fn no_two_sealed_texts_are_the_same() {
        let seal = seal(b"1");
        let text = || seal.seal_content("session", "a", &"secret").unwrap();

        assert_ne!(text(), text());
        assert_ne!(random_text().unwrap(), random_text().unwrap());
    }
}
