//! A secret as it is stored.

use serde::{Deserialize, Serialize};

use ginnel_api::id::prefix;
use ginnel_api::remote::vault_secrets::VaultSecret;
use ginnel_store::Document;

/// A secret with its encrypted value. What only shows secrets reads the same rows as [`VaultSecret`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct StoredSecret {
    #[serde(flatten)]
    pub shown: VaultSecret,
    /// The value, encrypted for this row.
    pub sealed: String,
}

impl StoredSecret {
    /// The identifier of the vault.
    pub fn vault_id(&self) -> &str {
        self.shown.vault.as_ref().map_or("", |vault| &vault.id)
    }

    pub fn name(&self) -> &str {
        self.shown.name.as_deref().unwrap_or_default()
    }
}

impl Document for StoredSecret {
    const PREFIX: &'static str = prefix::VAULT_SECRET;

    fn id(&self) -> &str {
        &self.shown.id
    }
}
