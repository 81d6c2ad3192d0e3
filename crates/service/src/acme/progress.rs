//! Which certificates cannot be obtained, and when those that were obtained end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ginnel_metrics::Families;

use crate::certificates::ManagedName;

/// Learns what is known of all names, whenever the manager looks.
#[derive(Default)]
pub(crate) struct CertificateProgress(Mutex<CertificateStatus>);

#[derive(Default)]
struct CertificateStatus {
    /// Names without the certificate that they should have, and why.
    failing: BTreeMap<String, String>,
    /// What of that was taken already.
    taken: BTreeMap<String, String>,
    /// When the first certificate ends, in seconds since the Unix epoch.
    next_end: Option<u64>,
}

impl CertificateProgress {
    pub(super) fn record_names(&self, all: &[ManagedName]) {
        let failing = all.iter().filter_map(|managed| {
            let failure = managed.failure.as_ref()?;
            let problem = format!("{} ({})", failure.message.escape_debug(), failure.code);
            Some((managed.name.clone(), problem))
        });
        let mut status = self.lock_status();
        status.failing = failing.collect();
        status.next_end = all.iter().filter_map(|managed| managed.expires_at).min();
    }

    /// The failures that were not taken before.
    pub(crate) fn take_failures(&self) -> Vec<(String, String)> {
        let mut status = self.lock_status();
        let mut failing = status.failing.clone();
        let taken = std::mem::replace(&mut status.taken, failing.clone());
        failing.retain(|name, problem| taken.get(name) != Some(problem));
        failing.into_iter().collect()
    }

    pub(crate) fn collect_metrics(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = self.lock_status();
        let help = "Names whose certificate could not be obtained or renewed the last time.";
        let count = status.failing.len() as f64;
        families.gauge("ginnel_certificates_failing", help)?.write_gauge(&[], count)
    }

    /// When the first certificate ends that was obtained, in seconds since the Unix epoch.
    pub(crate) fn next_end(&self) -> Option<u64> {
        self.lock_status().next_end
    }

    fn lock_status(&self) -> MutexGuard<'_, CertificateStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::ManagedFailure;

    fn failing(message: &str) -> ManagedName {
        let failure = ManagedFailure { code: "dns".into(), message: message.into() };
        ManagedName { name: "a.test".into(), failure: Some(failure), ..ManagedName::default() }
    }

    #[test]
    fn a_failure_is_taken_once_until_it_is_another_one_or_comes_back() {
        let progress = CertificateProgress::default();
        let taken = |all: &[ManagedName]| {
            progress.record_names(all);
            progress.take_failures().into_iter().map(|(_, problem)| problem).collect::<Vec<_>>()
        };

        assert_eq!(taken(&[failing("no\naddress")]), ["no\\naddress (dns)"]);
        assert_eq!(taken(&[failing("no\naddress")]), [""; 0]);
        assert_eq!(taken(&[failing("other")]), ["other (dns)"]);
        assert_eq!(taken(&[]), [""; 0]);
        assert_eq!(taken(&[failing("other")]), ["other (dns)"]);
    }
}
