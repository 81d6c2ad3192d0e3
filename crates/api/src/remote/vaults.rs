//! Vaults: groups of secrets, by whose names traffic policies find them.

use crate::macros::{resource, wire};
use crate::remote::vault_secrets::VaultSecret;
use crate::{Description, Metadata, Timestamp};

wire! {
    /// A group of secrets.
    pub struct Vault {
        /// Unique identifier, `vault_` and 27 characters.
        #[public(text)]
        pub id: String,
        /// The address of this vault.
        #[public(text)]
        pub uri: String,
        /// When the vault was created.
        pub created_at: Option<Timestamp>,
        /// When the vault was last changed.
        pub updated_at: Option<Timestamp>,
        /// A name that no other vault has: letters, digits, `_`, `-` and `.`.
        #[public(text)]
        pub name: Option<String>,
        /// Human-readable description of the vault; at most 255 bytes.
        #[public(text)]
        pub description: Option<Description>,
        /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
        #[public(text)]
        pub metadata: Option<Metadata>,
        /// The identifier of the user or bot user that created the vault.
        #[public(text)]
        pub created_by: Option<String>,
        /// The identifier of the user or bot user that last changed the vault.
        #[public(text)]
        pub last_updated_by: Option<String>,
    }
}

resource! {
    /// Vaults: groups of secrets, by whose names traffic policies find them.
    "vaults" {
        /// Create a vault.
        POST "/vaults" Create(
            /// A name that no other vault has.
            name: String,
            [description: Description, metadata: Metadata]
        ) -> Vault;
        /// List the vaults, newest first.
        GET "/vaults" List([before_id: String, limit: i64]) -> [vaults: Vault];
        /// List the secrets of a vault, newest first.
        GET "/vaults/{id}/secrets" GetSecretsByVault(id: String, [before_id: String, limit: i64]) -> [secrets: VaultSecret];
        /// Fetch one vault.
        GET "/vaults/{id}" Get(id: String) -> Vault;
        /// Change a vault; what is left out stays, and so does a name that a policy reads.
        PATCH "/vaults/{id}" Update(id: String, [name: String, description: Description, metadata: Metadata]) -> Vault;
        /// Delete a vault with its secrets, unless a policy reads one of them.
        DELETE "/vaults/{id}" Delete(id: String);
    }
}
