//! Static backends whose stored addresses are refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::mask;
use crate::base::address::AddressError;

/// The refused addresses with the reasons, by the identifiers of the backends. An earlier version accepted them, or read
/// them as the addresses of other machines.
#[derive(Debug, Default)]
pub(crate) struct RefusedBackends(Mutex<BTreeMap<String, String>>);

impl RefusedBackends {
    /// Adds a backend.
    pub(crate) fn add(&self, id: &str, address: &str, problem: &AddressError) {
        self.known().insert(id.to_owned(), format!("{:?} {problem}", mask::url(address)));
    }

    /// Removes a backend that is gone or has another address.
    pub(crate) fn remove(&self, id: &str) {
        self.known().remove(id);
    }

    /// Returns the identifiers with the addresses and the reasons.
    pub(crate) fn list(&self) -> Vec<(String, String)> {
        self.known().iter().map(|(id, problem)| (id.clone(), problem.clone())).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_address_is_listed_without_its_login() {
        let backends = RefusedBackends::default();

        backends.add("bkdst_1", "http://svc:swordfish@127.1:80", &AddressError::Url);

        let [(id, problem)] = &backends.list()[..] else { unreachable!() };
        assert_eq!(id, "bkdst_1");
        assert!(problem.contains("@127.1:80") && !problem.contains("swordfish"), "{problem}");
    }
}
