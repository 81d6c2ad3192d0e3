//! Remembers who callers are, until something is changed that this depends on.
//!
//! A caller depends on three documents at most: the key, and the user or bot user that owns it. A commit
//! that stores or removes one of them, by whatever operation and on whichever node, has it forgotten
//! before the change is answered here; other nodes learn of the commit by following the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use ginnel_api::id::{has_prefix, prefix};

use super::accounts::{Caller, authenticate_caller};
use super::store::{Changes, Store};
use super::{Refusal, Result};

/// How many callers are remembered at most.
const MAX_CACHED_CALLERS: usize = 1024;
/// The kinds of documents that say who a caller is.
const ACCOUNT_KINDS: [&str; 3] = [prefix::API_KEY, prefix::USER, prefix::BOT_USER];

/// Who callers are, of one database.
pub(super) struct Callers {
    known: Arc<Mutex<KnownCallers>>,
}

#[derive(Default)]
struct KnownCallers {
    as_of: CallersVersion,
    /// By the digest of the header: tokens themselves are not kept.
    callers: HashMap<[u8; 32], Arc<Caller>>,
}

/// What was read before one of these numbers grew may be out of date.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct CallersVersion {
    /// How many commits have changed accounts.
    changes: u64,
    /// [`Store::doubt_count`].
    doubts: u64,
}

impl Callers {
    /// Remembers callers of a database, whose changes it follows.
    pub(super) fn from_store(store: &Store) -> Self {
        let known = Arc::new(Mutex::new(KnownCallers::default()));
        let following = Arc::downgrade(&known);
        store.watch_changes(move |changes| {
            if let Some((known, accounts)) = following.upgrade().zip(changes.filter_ids(is_account))
            {
                lock_known(&known).forget_changed(&accounts);
            }
        });
        Self { known }
    }

    /// Finds out who sent a request.
    pub(super) async fn find(&self, store: &Store, headers: &HeaderMap) -> Result<Arc<Caller>> {
        let digest = hash_authorization(headers);
        // Taken before the database is read: a change in between must not be missed.
        let as_of = {
            let mut known = lock_known(&self.known);
            match store.doubt_count() {
                Some(doubts) => known.invalidate_before(doubts),
                None => known.callers.clear(),
            }
            if let Some(caller) = digest.and_then(|digest| known.callers.get(&digest)) {
                return Ok(caller.clone());
            }
            known.as_of
        };
        let sent = headers.clone();
        let read = store.read(move |view| authenticate_caller(view, &sent)).await;
        let caller = Arc::new(read.map_err(Refusal::without_details)?);
        if let Some(digest) = digest {
            lock_known(&self.known).cache_caller(as_of, digest, caller.clone());
        }
        Ok(caller)
    }
}

impl KnownCallers {
    /// Forgets everyone when changes were made, or may have been, that nobody here knows.
    fn invalidate_before(&mut self, doubts: u64) {
        if self.as_of.doubts < doubts {
            self.as_of.doubts = doubts;
            self.callers.clear();
        }
    }

    fn forget_changed(&mut self, accounts: &Changes) {
        self.as_of.changes += 1;
        self.callers.retain(|_, caller| {
            !accounts.includes(&caller.key_id) && !accounts.includes(&caller.owner_id)
        });
    }

    fn cache_caller(&mut self, as_of: CallersVersion, digest: [u8; 32], caller: Arc<Caller>) {
        if self.as_of != as_of {
            return;
        }
        if self.callers.len() >= MAX_CACHED_CALLERS {
            self.callers.clear();
        }
        self.callers.insert(digest, caller);
    }
}

fn lock_known(known: &Mutex<KnownCallers>) -> MutexGuard<'_, KnownCallers> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_account(id: &str) -> bool {
    ACCOUNT_KINDS.iter().any(|kind| has_prefix(id, kind))
}

/// None when there is not exactly one header; such requests are refused anyway.
fn hash_authorization(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(Sha256::digest(value.as_bytes()).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key_id: &str, owner_id: &str) -> Arc<Caller> {
        Arc::new(Caller { key_id: key_id.into(), owner_id: owner_id.into(), admin: false })
    }

    fn known() -> KnownCallers {
        let mut known = KnownCallers::default();
        known.cache_caller(known.as_of, [1; 32], caller("ak_1", "usr_1"));
        known.cache_caller(known.as_of, [2; 32], caller("ak_2", "bot_1"));
        known
    }

    fn remembered(known: &KnownCallers) -> Vec<u8> {
        let mut digests: Vec<_> = known.callers.keys().map(|digest| digest[0]).collect();
        digests.sort_unstable();
        digests
    }

    #[test]
    fn only_those_are_forgotten_whose_key_or_owner_has_changed() {
        for (changed, left) in [("ak_1", [2]), ("usr_1", [2]), ("ak_2", [1]), ("bot_1", [1])] {
            let mut known = known();

            known.forget_changed(&Changes::Of(vec![changed.to_owned()]));

            assert_eq!(remembered(&known), left, "{changed}");
        }
        let mut known = known();
        known.forget_changed(&Changes::All);
        assert_eq!(remembered(&known), [0; 0], "nobody knows who has changed");
    }

    #[test]
    fn whoever_was_read_before_a_change_is_not_remembered_after_it() {
        let mut known = known();
        let before = known.as_of;

        known.forget_changed(&Changes::Of(vec!["ak_3".to_owned()]));
        known.cache_caller(before, [3; 32], caller("ak_3", "usr_1"));
        assert_eq!(remembered(&known), [1, 2]);

        let before = known.as_of;
        known.invalidate_before(1);
        known.cache_caller(before, [3; 32], caller("ak_3", "usr_1"));
        assert_eq!(remembered(&known), [0; 0]);
    }

    #[test]
    fn accounts_are_told_from_other_documents() {
        assert!(["ak_1", "usr_1", "bot_1"].into_iter().all(is_account));
        assert!(!["ipp_1", "cr_1", "aev_1", "acme_1"].into_iter().any(is_account));
    }
}
