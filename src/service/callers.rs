//! Remembers who callers are between two changes of the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::Refusal;
use super::accounts::{Caller, authenticate};
use super::store::Store;

/// How many callers are remembered at most.
const MAX_CACHED_CALLERS: usize = 1024;

/// Who callers are, as of one commit; any later one makes it forget them, so that a deleted key is
/// refused on its very next use.
#[derive(Default)]
pub(super) struct Callers {
    known: Mutex<KnownCaller>,
}

#[derive(Default)]
struct KnownCaller {
    commits: u64,
    /// By the digest of the header: tokens themselves are not kept.
    callers: HashMap<[u8; 32], Arc<Caller>>,
}

impl Callers {
    /// Finds out who sent a request.
    pub(super) async fn find(
        &self,
        store: &Store,
        headers: &HeaderMap,
    ) -> Result<Arc<Caller>, Refusal> {
        // Taken before the database is read: a change in between must not be missed.
        let commits = store.commits();
        let digest = digest(headers);
        if let Some(caller) = digest.and_then(|digest| self.recall(commits, &digest)) {
            return Ok(caller);
        }
        let sent = headers.clone();
        let read = store.read(move |view| authenticate(view, &sent)).await;
        let caller = Arc::new(read.map_err(Refusal::for_strangers)?);
        if let Some(digest) = digest {
            self.remember(commits, digest, caller.clone());
        }
        Ok(caller)
    }

    fn recall(&self, commits: u64, digest: &[u8; 32]) -> Option<Arc<Caller>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.commits == commits { known.callers.get(digest).cloned() } else { None }
    }

    fn remember(&self, commits: u64, digest: [u8; 32], caller: Arc<Caller>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.commits > commits {
            return;
        }
        if known.commits < commits || known.callers.len() >= MAX_CACHED_CALLERS {
            known.callers.clear();
        }
        known.commits = commits;
        known.callers.insert(digest, caller);
    }
}

/// None when there is not exactly one header; such requests are refused anyway.
fn digest(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(Sha256::digest(value.as_bytes()).into()),
        _ => None,
    }
}
