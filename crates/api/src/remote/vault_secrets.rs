//! Secrets in vaults: values that traffic policies read, and that no response returns.

use super::Ref;
use crate::macros::{resource, wire};
use crate::{Description, Metadata, Secret, Timestamp};

wire! {
    /// A secret in a vault, without its value.
    pub struct VaultSecret {
        /// Unique identifier, `secret_` and 27 characters.
        #[public(text)]
        pub id: String,
        /// The address of this secret.
        #[public(text)]
        pub uri: String,
        /// When the secret was created.
        pub created_at: Option<Timestamp>,
        /// When the secret was last changed.
        pub updated_at: Option<Timestamp>,
        /// A name that no other secret of the vault has: letters, digits, `_`, `-` and `.`.
        #[public(text)]
        pub name: Option<String>,
        /// Human-readable description of the secret; at most 255 bytes.
        #[public(text)]
        pub description: Option<Description>,
        /// Arbitrary text that the service stores and returns unchanged; at most 4096 bytes.
        #[public(text)]
        pub metadata: Option<Metadata>,
        /// The user or bot user that created the secret.
        pub created_by: Option<Ref>,
        /// The user or bot user that last changed the secret.
        pub last_updated_by: Option<Ref>,
        /// The vault that the secret is in.
        pub vault: Option<Ref>,
        /// The name of the vault.
        #[public(text)]
        pub vault_name: Option<String>,
    }
}

resource! {
    /// Secrets in vaults: values that traffic policies read, and that no response returns.
    "vault_secrets" {
        /// Create a secret in a vault, which its identifier or its name says.
        POST "/vault_secrets" Create(
            /// A name that no other secret of the vault has.
            name: String,
            /// The value: 1 to 16384 bytes; it is encrypted, and never returned.
            value: Secret,
            [
                description: Description,
                metadata: Metadata,
                /// The identifier of the vault.
                vault_id: String,
                /// The name of the vault, instead of its identifier.
                vault_name: String,
            ]
        ) -> VaultSecret;
        /// List the secrets of all vaults, newest first.
        GET "/vault_secrets" List([before_id: String, limit: i64]) -> [secrets: VaultSecret];
        /// Fetch one secret, without its value.
        GET "/vault_secrets/{id}" Get(id: String) -> VaultSecret;
        /// Change a secret; what is left out stays, and so does a name that a policy reads.
        PATCH "/vault_secrets/{id}" Update(
            id: String,
            [name: String, value: Secret, description: Description, metadata: Metadata]
        ) -> VaultSecret;
        /// Delete a secret that no policy reads.
        DELETE "/vault_secrets/{id}" Delete(id: String);
    }
}
