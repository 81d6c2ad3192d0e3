//! Settings of the key of secrets.

use std::path::PathBuf;

use ginnel_api::Secret;
use ginnel_settings::settings;

settings! {
    /// The key that secrets are encrypted with. Without one, a service with its database in a file makes one next to the file.
    #[derive(Debug, Clone)]
    pub struct VaultSettings {
    }

    /// The settings of the key.
    rows {
        key: Option<Secret> = None,
            "vault_key", "KEY",
            "The key that secrets in vaults are encrypted with: 32 bytes in base64";
        key_file: Option<PathBuf> = None,
            "vault_key_file", "FILE",
            "A file that holds that key; nodes on PostgreSQL need the same one",
            when_unset("<path>-vault.key, made with the first secret");
        replaces_key: bool = false,
            "replace_vault_key", "BOOL",
            "Start although that key is lost: secrets cannot be read until they get new values, with a new key";
    }
}
