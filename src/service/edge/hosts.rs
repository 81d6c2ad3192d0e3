//! Which site a host name belongs to.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::site::Site;
use super::slot::Slot;

/// The sites of all host names; a name may start with `*.`.
#[derive(Default)]
pub(super) struct Hosts(RwLock<HashMap<String, Arc<Slot<Site>>>>);

impl Hosts {
    /// Gives a name to a site; false when another has it.
    pub(super) fn add(&self, name: &str, site: &Arc<Slot<Site>>) -> bool {
        let mut hosts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if hosts.contains_key(name) {
            return false;
        }
        hosts.insert(name.to_owned(), site.clone());
        true
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The site of a host: by its name, else by the longest wildcard.
    pub(super) fn find(&self, host: &str) -> Option<Arc<Slot<Site>>> {
        let hosts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = hosts.get(host) {
            return Some(site.clone());
        }
        let mut rest = host;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(site) = hosts.get(&format!("*.{parent}")) {
                return Some(site.clone());
            }
            rest = parent;
        }
        None
    }
}
