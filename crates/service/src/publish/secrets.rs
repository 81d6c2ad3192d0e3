//! The secrets that policies read, decrypted: they are in the memory of the service alone.

use std::collections::HashMap;
use std::sync::Arc;

use ginnel_api::remote::vaults::Vault;
use ginnel_gateway::Gateway;
use ginnel_policy::secrets::SecretName;
use ginnel_store::{self as store, View};

use crate::vaults::{StoredSecret, VaultKey};

/// All secrets, and the names of their vaults.
pub(super) struct PublishedSecrets {
    gateway: Gateway,
    key: Arc<VaultKey>,
    vaults: HashMap<String, String>,
    secrets: HashMap<String, PublishedSecret>,
    /// Whether what was published is not what is known.
    is_stale: bool,
}

struct PublishedSecret {
    vault_id: String,
    name: String,
    value: Arc<str>,
}

impl PublishedSecrets {
    pub(super) fn new(gateway: Gateway, key: Arc<VaultKey>) -> Self {
        Self { gateway, key, vaults: HashMap::new(), secrets: HashMap::new(), is_stale: false }
    }

    /// Publishes all secrets.
    pub(super) fn publish_all(&mut self, view: &View<'_>) -> store::StoreResult<()> {
        let (mut vaults, mut secrets) = (HashMap::new(), HashMap::new());
        view.for_each_document(|vault: Vault| {
            vaults.insert(vault.id, vault.name.unwrap_or_default());
            Ok(())
        })?;
        view.for_each_document(|stored: StoredSecret| {
            let id = stored.shown.id.clone();
            secrets.extend(self.decrypt_secret(&stored).map(|secret| (id, secret)));
            Ok(())
        })?;
        (self.vaults, self.secrets) = (vaults, secrets);
        self.publish_values();
        Ok(())
    }

    /// Reads a secret, which may be gone.
    pub(super) fn refresh_secret(&mut self, view: &View<'_>, id: &str) -> store::StoreResult<()> {
        let stored: Option<StoredSecret> = view.find_document(id)?;
        match stored.and_then(|stored| self.decrypt_secret(&stored)) {
            Some(secret) => self.secrets.insert(id.to_owned(), secret),
            None => self.secrets.remove(id),
        };
        self.is_stale = true;
        Ok(())
    }

    /// Reads the name of a vault, which may be gone.
    pub(super) fn refresh_vault(&mut self, view: &View<'_>, id: &str) -> store::StoreResult<()> {
        match view.find_document::<Vault>(id)? {
            Some(vault) => self.vaults.insert(id.to_owned(), vault.name.unwrap_or_default()),
            None => self.vaults.remove(id),
        };
        self.is_stale = true;
        Ok(())
    }

    /// Publishes what was read, all at once.
    pub(super) fn publish_changes(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.publish_values();
        }
    }

    fn publish_values(&self) {
        let named = self.secrets.values().filter_map(|secret| {
            let vault = self.vaults.get(&secret.vault_id)?.clone();
            let name = SecretName { vault, name: secret.name.clone() };
            Some((name, secret.value.clone()))
        });
        self.gateway.secrets().replace(named.collect());
    }

    fn decrypt_secret(&self, stored: &StoredSecret) -> Option<PublishedSecret> {
        let (id, name) = (&stored.shown.id, stored.name().to_owned());
        match self.key.open(id, &stored.sealed) {
            Ok(value) => {
                let vault_id = stored.vault_id().to_owned();
                Some(PublishedSecret { vault_id, name, value: value.into() })
            }
            Err(error) => {
                tracing::error!("policies that read the secret {id} fail: {error}");
                None
            }
        }
    }
}
