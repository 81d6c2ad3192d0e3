//! JSON Web Tokens, and the keys that verify them.

pub mod algorithm;
mod claims;
mod keys;
mod token;

pub(super) use self::claims::{ClaimRules, InvalidClaims};
pub use self::keys::KeySet;
pub(super) use self::token::UnverifiedToken;
