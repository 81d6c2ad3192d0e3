//! The keys of issuers, kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::policy::jwt::KeySet;

/// How long keys are good for.
const FRESH: Duration = Duration::from_secs(15 * 60);

/// How long a source is left alone after it was asked for a key it did not have, or has failed.
const MISSING_KEY_TIMEOUT: Duration = Duration::from_secs(30);

/// How many sources there are at most.
const SOURCES: usize = 100;

/// Keys by the URL they come from.
#[derive(Debug, Default)]
pub struct Keys(Mutex<HashMap<String, KeyCacheEntry>>);

#[derive(Debug, Clone)]
struct KeyCacheEntry {
    fetched: Instant,
    /// None where the source has failed.
    keys: Option<Arc<KeySet>>,
}

/// What is known of a source.
#[derive(Debug, Clone)]
pub(in super::super) enum CachedKeySet {
    /// Its keys; `recent` when asking again would be too soon.
    Keys { keys: Arc<KeySet>, recent: bool },
    /// It has just failed.
    Failed,
    /// Nothing.
    Nothing,
}

impl Keys {
    pub(in super::super) fn of(&self, url: &str, now: Instant) -> CachedKeySet {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = sources.get(url) else { return CachedKeySet::Nothing };
        let age = now.saturating_duration_since(entry.fetched);
        match &entry.keys {
            Some(keys) if age < FRESH => {
                CachedKeySet::Keys { keys: keys.clone(), recent: age < MISSING_KEY_TIMEOUT }
            }
            None if age < MISSING_KEY_TIMEOUT => CachedKeySet::Failed,
            _ => CachedKeySet::Nothing,
        }
    }

    pub(in super::super) fn keep(&self, url: &str, keys: Option<Arc<KeySet>>, now: Instant) {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES && !sources.contains_key(url) {
            let oldest = sources.iter().min_by_key(|(_, entry)| entry.fetched);
            let oldest = oldest.map(|(url, _)| url.clone());
            oldest.map(|url| sources.remove(&url));
        }
        sources.insert(url.to_owned(), KeyCacheEntry { fetched: now, keys });
    }
}
