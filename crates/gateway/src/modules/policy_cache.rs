//! Traffic policies and user agent filters that were compiled, by what they were compiled from.
//!
//! A handler compiles what a call gives, to find out what is wrong with it, and keeps the result until
//! the call is answered. Publication takes it from here, so that nothing is compiled twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::Serialize;
use sha2::{Digest, Sha256};

use ginnel_policy::user_agent::Filter;
use ginnel_policy::{Policy, Problem, Scope};

/// How many entries there are before those that nobody uses are dropped.
const MIN_ENTRIES: usize = 1024;

/// The policies and filters that somebody uses.
#[derive(Default)]
pub struct PolicyCache {
    policies: ContentCache<Policy>,
    filters: ContentCache<Filter>,
    /// The problems of stored policies that are refused, by the identifiers of their owners.
    refused: Mutex<BTreeMap<String, String>>,
}

impl PolicyCache {
    /// The policy of a document.
    pub fn compiled_policy(
        &self,
        document: &impl Serialize,
        scope: Scope,
    ) -> Result<Arc<Policy>, Vec<Problem>> {
        self.policies.get_or_compile(&(format!("{scope:?}"), document), || {
            // What cannot be written as JSON is no document either, which the compiler says.
            let document = serde_json::to_value(document).unwrap_or_default();
            Policy::compile(&document, scope)
        })
    }

    /// Remembers that the stored policy of a route, an edge or an endpoint is refused.
    pub fn record_refused(&self, owner: &str, problem: String) {
        self.lock_refused().insert(owner.to_owned(), problem);
    }

    /// Forgets the refused policy of an owner, which is gone or has another policy.
    pub fn forget_refused(&self, owner: &str) {
        self.lock_refused().remove(owner);
    }

    /// Returns the owners of stored policies that are refused, with the problems.
    pub fn refused_policies(&self) -> Vec<(String, String)> {
        self.lock_refused()
            .iter()
            .map(|(owner, problem)| (owner.clone(), problem.clone()))
            .collect()
    }

    fn lock_refused(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The filter of two lists of expressions.
    pub fn compiled_filter(
        &self,
        allow: &[String],
        deny: &[String],
    ) -> Result<Arc<Filter>, Vec<Problem>> {
        self.filters.get_or_compile(&(allow, deny), || Filter::compile(allow, deny))
    }
}

/// SHA-256 of the JSON that something was compiled from.
type ContentHash = [u8; 32];

/// What is in use of one kind.
struct ContentCache<T>(Mutex<CacheEntries<T>>);

struct CacheEntries<T> {
    known: HashMap<ContentHash, Weak<T>>,
    /// How many entries there may be before those that nobody uses are dropped.
    limit: usize,
}

impl<T> Default for ContentCache<T> {
    fn default() -> Self {
        Self(Mutex::new(CacheEntries { known: HashMap::new(), limit: MIN_ENTRIES }))
    }
}

impl<T> ContentCache<T> {
    /// What is made of this content; nobody waits for somebody else who compiles.
    fn get_or_compile<E>(
        &self,
        content: &impl Serialize,
        compile: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let Some(hash) = hash_of(content) else { return compile().map(Arc::new) };
        let known = self.lock_entries().known.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(compile()?);
        self.lock_entries().insert(hash, &made);
        Ok(made)
    }

    fn lock_entries(&self) -> std::sync::MutexGuard<'_, CacheEntries<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> CacheEntries<T> {
    fn insert(&mut self, hash: ContentHash, made: &Arc<T>) {
        if self.known.len() >= self.limit {
            self.known.retain(|_, entry| entry.strong_count() > 0);
            // Half of them are new before all are looked at again.
            self.limit = MIN_ENTRIES.max(2 * self.known.len());
        }
        self.known.insert(hash, Arc::downgrade(made));
    }
}

fn hash_of(content: &impl Serialize) -> Option<ContentHash> {
    Some(Sha256::digest(serde_json::to_vec(content).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_not_compiled_again() {
        let cache = ContentCache::default();
        let compile = |content: &str, value: u32| {
            cache.get_or_compile(&content, || Ok::<_, ()>(value)).unwrap()
        };

        let first = compile("a", 1);

        assert_eq!((*compile("a", 2), *compile("b", 3)), (1, 3));
        drop(first);
        assert_eq!(*compile("a", 4), 4, "nobody used it any more");
    }

    #[test]
    fn what_cannot_be_compiled_is_not_remembered() {
        let cache = ContentCache::<u32>::default();

        assert_eq!(cache.get_or_compile(&"a", || Err("broken")), Err("broken"));
        assert_eq!(cache.get_or_compile(&"a", || Ok::<_, ()>(1)).as_deref(), Ok(&1));
    }

    #[test]
    fn entries_that_nobody_uses_are_dropped() {
        let cache = ContentCache::default();
        let kept: Vec<_> = (0..MIN_ENTRIES / 2)
            .map(|number| cache.get_or_compile(&number, || Ok::<_, ()>(number)).unwrap())
            .collect();

        for number in 0..4 * MIN_ENTRIES {
            cache.get_or_compile(&(number + kept.len()), || Ok::<_, ()>(number)).unwrap();
        }

        assert!(cache.lock_entries().known.len() <= MIN_ENTRIES);
        let found = cache.get_or_compile(&7_usize, || Ok::<_, ()>(0)).unwrap();
        assert!(Arc::ptr_eq(&found, &kept[7]));
    }
}
