//! Secrets as they are stored: encrypted, each bound to its row, and found by the names that policies
//! read them by.

mod cipher;
mod key;
mod names;
mod settings;
mod stored;

pub(super) use key::VaultKey;
pub(super) use names::{
    SECRET_NAMES, SECRETS_OF_VAULT, VAULT_NAMES, link_secrets, secret_claim, secret_readers,
};
pub use settings::VaultSettings;
pub(super) use stored::StoredSecret;
