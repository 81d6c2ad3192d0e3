//! JSON Web Tokens, and the keys that verify them.
//!
//! Own code of 290 lines, because `jsonwebtoken` 12 brings a second implementation of cryptography next to `ring`, which
//! TLS uses: 9 packages with `aws-lc-rs`, which needs CMake, or 31 with `rust_crypto`. It also does not check `iat` and
//! `auth_time`, which the rules of logins need.

pub mod algorithm;
mod claims;
mod key_request;
mod keys;
mod token;

pub(super) use self::claims::{ClaimRules, InvalidClaims};
pub use self::key_request::{KEYS_OF_LOGINS, KEYS_OF_TOKENS, KeyRequest};
pub use self::keys::KeySet;
pub(super) use self::token::UnverifiedToken;
