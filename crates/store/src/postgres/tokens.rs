//! What tells the batches of this process from those of other nodes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::StoreResult;

/// How many bytes all tokens of a process begin with.
const PREFIX_BYTES: usize = 8;
const TOKEN_BYTES: usize = 16;

/// The tokens of the batches of this process.
pub(super) struct BatchTokens {
    prefix: [u8; PREFIX_BYTES],
    /// Those of batches of which it is not known, or not yet, whether they were stored.
    unresolved: Mutex<HashMap<Vec<u8>, UnresolvedBatch>>,
}

/// A batch of which it is not known whether it was stored.
enum UnresolvedBatch {
    /// Whoever commits it tells of its changes if it was; those that were seen to be stored are kept.
    InFlight(Option<Vec<String>>),
    /// Whoever sees it stored tells of its changes.
    Abandoned,
}

impl BatchTokens {
    pub(super) fn new() -> StoreResult<Self> {
        let mut prefix = [0; PREFIX_BYTES];
        getrandom::fill(&mut prefix)?;
        Ok(Self { prefix, unresolved: Mutex::default() })
    }

    /// What no other process is called.
    pub(super) fn process_name(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.prefix))
    }

    /// A new one.
    pub(super) fn next(&self) -> StoreResult<Vec<u8>> {
        let mut token = vec![0; TOKEN_BYTES];
        getrandom::fill(&mut token)?;
        token[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        Ok(token)
    }

    /// Notes a batch that may be stored from now on.
    pub(super) fn begin_batch(&self, token: &[u8]) {
        self.lock_unresolved().insert(token.to_owned(), UnresolvedBatch::InFlight(None));
    }

    /// Notes that what became of a batch is known.
    pub(super) fn forget_batch(&self, token: &[u8]) {
        self.lock_unresolved().remove(token);
    }

    /// Notes that whoever committed a batch knows no more what became of it; gives its changes when it was
    /// seen to be stored.
    pub(super) fn abandon_batch(&self, token: &[u8]) -> Option<Vec<String>> {
        let mut unresolved = self.lock_unresolved();
        if let Some(UnresolvedBatch::InFlight(Some(changed))) = unresolved.remove(token) {
            return Some(changed);
        }
        unresolved.insert(token.to_owned(), UnresolvedBatch::Abandoned);
        None
    }

    /// Notes that a batch was stored; true when whoever sees that is to tell of its changes: it is not one
    /// of this process, or was abandoned.
    pub(super) fn is_news(&self, token: &[u8], changed: &[String]) -> bool {
        if !token.starts_with(&self.prefix) {
            return true;
        }
        let mut unresolved = self.lock_unresolved();
        match unresolved.get_mut(token) {
            Some(UnresolvedBatch::InFlight(seen)) => {
                *seen = Some(changed.to_owned());
                false
            }
            Some(UnresolvedBatch::Abandoned) => unresolved.remove(token).is_some(),
            None => false,
        }
    }

    fn lock_unresolved(&self) -> MutexGuard<'_, HashMap<Vec<u8>, UnresolvedBatch>> {
        self.unresolved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_of_a_batch_are_told_once_whatever_became_of_it() {
        let (tokens, changed) = (BatchTokens::new().unwrap(), vec!["ak_1".to_owned()]);
        let other = BatchTokens::new().unwrap().next().unwrap();
        assert!(tokens.is_news(&other, &changed));

        let stored = tokens.next().unwrap();
        tokens.begin_batch(&stored);
        assert!(!tokens.is_news(&stored, &changed), "whoever commits it notifies");
        tokens.forget_batch(&stored);
        assert!(!tokens.is_news(&stored, &changed));

        let seen_before = tokens.next().unwrap();
        tokens.begin_batch(&seen_before);
        assert!(!tokens.is_news(&seen_before, &changed));
        assert_eq!(tokens.abandon_batch(&seen_before), Some(changed.clone()));

        let seen_after = tokens.next().unwrap();
        tokens.begin_batch(&seen_after);
        assert_eq!(tokens.abandon_batch(&seen_after), None);
        assert!(tokens.is_news(&seen_after, &changed));
        assert!(!tokens.is_news(&seen_after, &changed));
    }
}
