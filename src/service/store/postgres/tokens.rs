//! What tells the batches of this process from those of other nodes.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::service::store::StoreError;

/// How many bytes all tokens of a process begin with.
const PREFIX_BYTES: usize = 8;
const TOKEN_BYTES: usize = 16;

/// The tokens of the batches of this process.
pub(super) struct BatchTokens {
    prefix: [u8; PREFIX_BYTES],
    /// Those of batches of which it is not known, or not yet, whether they were stored.
    unresolved: Mutex<HashSet<Vec<u8>>>,
}

impl BatchTokens {
    pub(super) fn new() -> Result<Self, StoreError> {
        let mut prefix = [0; PREFIX_BYTES];
        getrandom::fill(&mut prefix)?;
        Ok(Self { prefix, unresolved: Mutex::default() })
    }

    /// A new one.
    pub(super) fn next(&self) -> Result<Vec<u8>, StoreError> {
        let mut token = vec![0; TOKEN_BYTES];
        getrandom::fill(&mut token)?;
        token[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        Ok(token)
    }

    /// Notes a batch that may be stored without this process knowing it.
    pub(super) fn note_unresolved(&self, token: &[u8]) {
        self.unresolved.lock().unwrap_or_else(PoisonError::into_inner).insert(token.to_owned());
    }

    /// Notes that what became of a batch is known.
    pub(super) fn forget(&self, token: &[u8]) {
        self.unresolved.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }

    /// True when the batch is one of this process, whose changes the watchers here know.
    pub(super) fn is_told(&self, token: &[u8]) -> bool {
        let mut unresolved = self.unresolved.lock().unwrap_or_else(PoisonError::into_inner);
        token.starts_with(&self.prefix) && !unresolved.remove(token)
    }
}
