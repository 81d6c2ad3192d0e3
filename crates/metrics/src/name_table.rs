//! Handles by name, as many as a scrape shall have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many names have series of their own.
const MAX_NAMES: usize = 200;
/// What all others are shown as.
const OTHER: &str = "other";

/// Handles of named things; what comes when there are 200 shares one.
#[derive(Debug)]
pub struct NameTable<T> {
    named: Mutex<HashMap<Arc<str>, Arc<T>>>,
    other: Arc<T>,
}

impl<T> NameTable<T> {
    /// No names; those without a place count in `other`.
    pub fn new(other: T) -> Self {
        Self { named: Mutex::default(), other: Arc::new(other) }
    }

    /// The handle of a name, which may be made now. Names that nobody holds a handle of make room.
    pub fn get_or_insert(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut named = self.lock_names();
        if let Some(known) = named.get(name) {
            return known.clone();
        }
        if named.len() >= MAX_NAMES {
            named.retain(|_, handle| Arc::strong_count(handle) > 1);
        }
        if named.len() >= MAX_NAMES {
            return self.other.clone();
        }
        let made = Arc::new(make());
        named.insert(name.into(), made.clone());
        made
    }

    /// All names with their handles, in order.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let named = self.lock_names();
        let mut all: Vec<_> = named.iter().map(|(name, it)| (name.clone(), it.clone())).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all.push((OTHER.into(), self.other.clone()));
        all
    }

    fn lock_names(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<T>>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_one_and_those_that_are_gone_make_room() {
        let table = NameTable::new("shared");
        let held: Vec<_> =
            (0..MAX_NAMES).map(|n| table.get_or_insert(&n.to_string(), || "own")).collect();

        assert_eq!(*table.get_or_insert("late", || "own"), "shared");
        assert_eq!(table.all().len(), MAX_NAMES + 1);
        drop(held);

        assert_eq!(*table.get_or_insert("late", || "own"), "own");
        assert_eq!(table.all().last().unwrap().0.as_ref(), OTHER);
    }
}
