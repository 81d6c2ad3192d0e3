//! JSON Web Tokens, and the keys that verify them.

mod keys;
mod token;

pub use self::keys::KeySet;
pub(super) use self::token::{Invalid, Token};
