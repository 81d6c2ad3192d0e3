//! Stored static backends that the operator has to correct.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ginnel_api::remote::backends::static_::StaticBackend;

/// The static backends with flaws, by their identifiers. The log of the start, the health of the service and the console
/// read it.
#[derive(Debug, Default)]
pub(crate) struct FlawedBackends(Mutex<BTreeMap<String, BackendFlaws>>);

/// The flaws of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BackendFlaws {
    name: String,
    /// If true, the certificate is not verified.
    is_unverified: bool,
    /// The address with the reason, if it is refused. An earlier version accepted it, or read it as that of
    /// another machine.
    refused_address: Option<String>,
}

impl FlawedBackends {
    /// Returns the names of those whose certificates are not verified.
    pub(crate) fn unverified_names(&self) -> Vec<String> {
        let known = self.lock_known();
        known.values().filter(|it| it.is_unverified).map(|it| it.name.clone()).collect()
    }

    /// Returns the identifiers of those whose addresses are refused, with the addresses and the reasons.
    pub(crate) fn refused_addresses(&self) -> Vec<(String, String)> {
        let known = self.lock_known();
        let refused = known.iter().filter_map(|(id, it)| Some((id, it.refused_address.as_ref()?)));
        refused.map(|(id, problem)| (id.clone(), problem.clone())).collect()
    }

    /// Notes a backend as it is now.
    pub(super) fn record_flaws(&self, backend: &StaticBackend) {
        let (is_unverified, refused_address) = (backend.is_unverified(), backend.refused_address());
        if is_unverified || refused_address.is_some() {
            let flaws =
                BackendFlaws { name: backend.display_name(), is_unverified, refused_address };
            self.lock_known().insert(backend.id.clone(), flaws);
        } else {
            self.forget(&backend.id);
        }
    }

    /// Forgets a backend that is gone.
    pub(super) fn forget(&self, id: &str) {
        self.lock_known().remove(id);
    }

    fn lock_known(&self) -> MutexGuard<'_, BTreeMap<String, BackendFlaws>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_api::remote::backends::static_::StaticBackendTls;

    #[test]
    fn a_backend_is_listed_until_it_is_corrected() {
        let known = FlawedBackends::default();
        let address = |text: &str| StaticBackend {
            id: "bkdst_1".to_owned(),
            address: Some(text.to_owned()),
            ..StaticBackend::default()
        };
        let tls = StaticBackendTls { enabled: Some(true), ..StaticBackendTls::default() };

        known.record_flaws(&address("http://svc:swordfish@127.1:80"));
        let [(id, problem)] = &known.refused_addresses()[..] else { unreachable!() };
        assert_eq!(id, "bkdst_1");
        assert!(problem.contains("@127.1:80") && !problem.contains("swordfish"), "{problem}");

        known.record_flaws(&StaticBackend { tls: Some(tls), ..address("127.0.0.1:80") });
        assert!(known.refused_addresses().is_empty());
        assert_eq!(known.unverified_names(), ["bkdst_1 (127.0.0.1:80)"]);

        known.record_flaws(&address("127.0.0.1:80"));
        assert!(known.unverified_names().is_empty());
    }
}
