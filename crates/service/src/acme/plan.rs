//! What is to be done now, and when there is something to do next.

use std::collections::{BTreeMap, BTreeSet};

use ginnel_api::id::prefix;
use ginnel_store::StoreResult;

use crate::certificates::ManagedName;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct AcmePlan {
    /// The names whose certificate is to be obtained now, the longest overdue first.
    pub due: Vec<ManagedName>,
    /// The names that nobody needs any more, whose certificate has expired.
    pub expired: Vec<ManagedName>,
    /// When the next name is due, in seconds since the Unix epoch.
    pub next: Option<u64>,
}

impl AcmePlan {
    /// What is to be done for these names, of which `all` is known; `exists` says whether a certificate
    /// is still stored.
    pub fn for_names(
        names: BTreeSet<String>,
        all: &[ManagedName],
        exists: impl Fn(&str) -> StoreResult<bool>,
        now: u64,
    ) -> StoreResult<Self> {
        let known: BTreeMap<&str, &ManagedName> =
            all.iter().map(|managed| (managed.name.as_str(), managed)).collect();
        let (mut plan, mut due) = (Self::default(), Vec::new());
        for name in &names {
            let managed = known.get(name.as_str()).copied().cloned();
            let managed =
                managed.unwrap_or_else(|| ManagedName { name: name.clone(), ..Default::default() });
            let moment = due_at(&managed, &exists)?;
            if moment <= now {
                due.push((moment, managed));
            } else {
                plan.next = Some(plan.next.map_or(moment, |next| next.min(moment)));
            }
        }
        due.sort_by_key(|(moment, _)| *moment);
        plan.due = due.into_iter().map(|(_, managed)| managed).collect();
        let is_over = |it: &&ManagedName| it.expires_at.is_none_or(|end| end <= now);
        let unneeded = all.iter().filter(|managed| !names.contains(&managed.name));
        plan.expired = unneeded.filter(is_over).cloned().collect();
        Ok(plan)
    }
}

/// When the certificate of a name is to be obtained.
pub(super) fn due_at(
    managed: &ManagedName,
    exists: impl Fn(&str) -> StoreResult<bool>,
) -> StoreResult<u64> {
    if let Some(retries_at) = managed.retries_at {
        return Ok(retries_at);
    }
    let is_kept = match &managed.certificate_id {
        Some(id) => exists(id)?,
        None => false,
    };
    Ok(managed.renews_at.filter(|_| is_kept && managed.pending.is_none()).unwrap_or(0))
}

/// When a certificate is renewed: at two thirds of its life.
pub(super) fn renewal_time(not_before: u64, not_after: u64) -> u64 {
    not_after - not_after.saturating_sub(not_before) / 3
}

/// Whether an identifier names something that a plan depends on.
pub(super) fn affects_plan(id: &str) -> bool {
    let kind = id.rsplit_once('_').map_or(id, |(kind, _)| kind);
    [prefix::RESERVED_DOMAIN, prefix::TLS_CERTIFICATE].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed(name: &str) -> ManagedName {
        let certificate_id = Some(format!("cert_{name}"));
        ManagedName { name: name.to_owned(), certificate_id, ..ManagedName::default() }
    }

    fn plan(names: &[&str], all: &[ManagedName]) -> AcmePlan {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        AcmePlan::for_names(names, all, |id| Ok(id != "cert_deleted"), 100).unwrap()
    }

    #[test]
    fn what_is_new_failed_deleted_or_old_is_due() {
        let all = [
            ManagedName { renews_at: Some(99), ..managed("old") },
            ManagedName { renews_at: Some(101), ..managed("fresh") },
            ManagedName { renews_at: Some(900), ..managed("deleted") },
            ManagedName { renews_at: Some(1), retries_at: Some(150), ..managed("failed") },
            ManagedName { retries_at: Some(50), ..managed("again") },
        ];
        let plan = plan(&["again", "deleted", "failed", "fresh", "new", "old"], &all);

        let due: Vec<_> = plan.due.iter().map(|managed| managed.name.as_str()).collect();
        assert_eq!(due, ["deleted", "new", "again", "old"]);
        assert_eq!(plan.next, Some(101));
    }

    #[test]
    fn what_nobody_needs_stays_until_it_expires() {
        let all = [
            ManagedName { expires_at: Some(100), ..managed("gone") },
            ManagedName { expires_at: Some(101), ..managed("kept") },
            ManagedName { expires_at: Some(1), ..managed("needed") },
        ];
        let plan = plan(&["needed"], &all);

        assert_eq!(plan.expired.len(), 1);
        assert_eq!(plan.expired[0].name, "gone");
    }

    #[test]
    fn a_third_of_its_life_is_left_at_renewal() {
        assert_eq!(renewal_time(0, 90), 60);
        assert_eq!(renewal_time(1000, 1006), 1004);
    }
}
