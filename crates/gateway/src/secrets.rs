//! The secrets that policies read, which modules hold on to.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use ginnel_policy::secrets::SecretName;

/// The values of secrets by their names. It has no `Debug`, so that nothing can print them.
#[derive(Default)]
pub struct SecretTable(ArcSwap<SecretValues>);

/// The values of secrets by their names.
pub type SecretValues = HashMap<SecretName, Arc<str>>;

impl SecretTable {
    /// The value of a secret, as it is now.
    pub fn find(&self, name: &SecretName) -> Option<Arc<str>> {
        self.0.load().get(name).cloned()
    }

    /// Replaces them all.
    pub fn replace(&self, values: SecretValues) {
        self.0.store(Arc::new(values));
    }
}
