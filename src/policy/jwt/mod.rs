//! JSON Web Tokens, and the keys that verify them.

pub mod algorithm;
mod keys;
mod token;

pub use self::keys::KeySet;
pub(super) use self::token::{InvalidClaims, UnverifiedToken};
