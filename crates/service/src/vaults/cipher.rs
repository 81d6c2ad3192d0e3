//! Encrypts values with a key that is not in the database.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// How long a key is, in bytes.
pub(super) const KEY_LENGTH: usize = 32;

/// A key that can be used. It has no `Debug`, so that nothing can print it.
pub(super) struct Cipher(LessSafeKey);

/// Why something could not be encrypted, or not be read with this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CipherError;

impl Cipher {
    /// Reads a key: 32 bytes in base64; space around it is ignored.
    pub fn from_base64(text: &str) -> Option<Self> {
        Self::from_bytes(&STANDARD.decode(text.trim()).ok()?)
    }

    /// A new key, and its text.
    pub fn new() -> Result<(Self, String), CipherError> {
        let mut bytes = [0; KEY_LENGTH];
        getrandom::fill(&mut bytes).map_err(|_| CipherError)?;
        Ok((Self::from_bytes(&bytes).ok_or(CipherError)?, STANDARD.encode(bytes)))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        UnboundKey::new(&CHACHA20_POLY1305, bytes).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    /// Encrypts a text for one row: nobody can read it from another.
    pub fn seal(&self, row: &str, text: &str) -> Result<String, CipherError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|_| CipherError)?;
        let mut sealed = text.as_bytes().to_vec();
        let nonce_of_seal = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(nonce_of_seal, Aad::from(row), &mut sealed)
            .map_err(|_| CipherError)?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// Decrypts what was encrypted for a row.
    pub fn open(&self, row: &str, sealed: &str) -> Result<String, CipherError> {
        let bytes = STANDARD.decode(sealed).map_err(|_| CipherError)?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_LEN).ok_or(CipherError)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| CipherError)?;
        let mut rest = rest.to_vec();
        let text =
            self.0.open_in_place(nonce, Aad::from(row), &mut rest).map_err(|_| CipherError)?;
        String::from_utf8(text.to_vec()).map_err(|_| CipherError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_only_with_its_key_from_its_row() {
        let (cipher, text) = Cipher::new().unwrap();
        let (other, _) = Cipher::new().unwrap();

        let sealed = cipher.seal("secret_1", "value").unwrap();

        assert!(!sealed.contains("value"));
        assert_ne!(cipher.seal("secret_1", "value").unwrap(), sealed, "nonces differ");
        let same = Cipher::from_base64(&format!(" {text}\n")).unwrap();
        assert_eq!(same.open("secret_1", &sealed).unwrap(), "value");
        assert_eq!(same.open("secret_2", &sealed), Err(CipherError));
        assert_eq!(other.open("secret_1", &sealed), Err(CipherError));
        assert_eq!(same.open("secret_1", "AAAA"), Err(CipherError));
    }

    #[test]
    fn a_key_is_32_bytes_in_base64() {
        for text in ["", "c2hvcnQ=", "not base64", &"A".repeat(64)] {
            assert!(Cipher::from_base64(text).is_none(), "{text}");
        }
    }
}
