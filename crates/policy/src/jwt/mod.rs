//! JSON Web Tokens, and the keys that verify them.

pub mod algorithm;
mod claims;
mod key_request;
mod keys;
mod token;

pub(super) use self::claims::{ClaimRules, InvalidClaims};
pub use self::key_request::{KEYS_OF_LOGINS, KEYS_OF_TOKENS, KeyRequest};
pub use self::keys::KeySet;
pub(super) use self::token::UnverifiedToken;
