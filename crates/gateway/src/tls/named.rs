//! Certificates that belong to single names, in tables that a handshake reads without a lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::sign::CertifiedKey;

/// The certificates that belong to single names.
#[derive(Default)]
pub struct NamedCertificates {
    /// Those that were uploaded for a reserved domain: they win.
    pub uploaded: CertificateNames,
    /// Those that the service has obtained by itself: for names that nothing else covers.
    pub obtained: CertificateNames,
}

/// Certificates by host name; the first label of a name may be `*`.
#[derive(Default)]
pub struct CertificateNames {
    names: ArcSwap<HashMap<Box<str>, Arc<CertifiedKey>>>,
    /// Held while the table is replaced.
    changes: Mutex<()>,
}

impl CertificateNames {
    /// Gives a name its certificate, or takes it away; connections stay.
    pub fn set(&self, name: &str, certificate: Option<Arc<CertifiedKey>>) {
        let _changing = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = HashMap::clone(&self.names.load());
        match certificate {
            Some(certificate) => drop(names.insert(name.into(), certificate)),
            None => drop(names.remove(name)),
        }
        self.names.store(Arc::new(names));
    }

    /// The certificate for a name that a visitor asks for: its own, else that of the wildcard above,
    /// which stands for one label (RFC 6125, section 6.4.3).
    pub fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let names = self.names.load();
        if names.is_empty() {
            return None;
        }
        let name = name.to_ascii_lowercase();
        let parent = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let found = names.get(name.as_str()).or_else(|| names.get(parent()?.as_str()));
        found.cloned()
    }
}
