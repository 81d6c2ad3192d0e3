//! A bounded map that owners share: where it is full, those go first of whom there are most.

use std::collections::HashMap;
use std::hash::Hash;

/// What part of the entries makes room at once, so that a full map is not searched for each new entry.
const ROOM_PARTS: usize = 16;

/// Entries by key, each of an owner.
pub struct FairCache<K, V> {
    max_entries: usize,
    entries: HashMap<K, Owned<V>>,
    /// How many entries each owner has.
    counts: HashMap<u32, usize>,
}

struct Owned<V> {
    owner: u32,
    value: V,
}

impl<K: Hash + Eq + Clone, V> FairCache<K, V> {
    pub fn new(max_entries: usize) -> Self {
        Self { max_entries, entries: HashMap::new(), counts: HashMap::new() }
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.max_entries
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// The entry with a key, or a new one; where there is no room, the entries of the smallest `age` go, of
    /// those owners that have more than their share.
    pub fn get_or_insert<A: Ord + Copy>(
        &mut self,
        (owner, key): (u32, K),
        new: impl FnOnce() -> V,
        age: impl Fn(&V) -> A,
    ) -> &mut V {
        if self.is_full() && !self.entries.contains_key(&key) {
            self.make_room(age);
        }
        let counts = &mut self.counts;
        let entry = self.entries.entry(key).or_insert_with(|| {
            *counts.entry(owner).or_default() += 1;
            Owned { owner, value: new() }
        });
        &mut entry.value
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.decrement_count(entry.owner);
        Some(entry.value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// Keeps those entries alone.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        let counts = &mut self.counts;
        self.entries.retain(|_, entry| {
            let stays = keep(&entry.value);
            if !stays && let Some(count) = counts.get_mut(&entry.owner) {
                *count -= 1;
            }
            stays
        });
        counts.retain(|_, count| *count > 0);
    }

    fn decrement_count(&mut self, owner: u32) {
        if let Some(count) = self.counts.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&owner);
            }
        }
    }

    fn make_room<A: Ord + Copy>(&mut self, age: impl Fn(&V) -> A) {
        let budget = self.max_entries - self.max_entries.div_ceil(ROOM_PARTS);
        let share = self.fair_share(budget).max(1);
        let has_too_many = |owner: &u32| self.counts.get(owner).is_some_and(|it| *it > share);
        // One pass for all owners, of whom there may be many.
        let mut of_owners: HashMap<u32, Vec<(A, K)>> = HashMap::new();
        for (key, entry) in self.entries.iter().filter(|(_, entry)| has_too_many(&entry.owner)) {
            let of_owner = of_owners.entry(entry.owner).or_default();
            of_owner.push((age(&entry.value), key.clone()));
        }
        for of_owner in of_owners.into_values() {
            let surplus = of_owner.len() - share;
            self.remove_oldest(of_owner, surplus);
        }
        // Where there are more owners than room, not each of them has a share.
        let surplus = self.entries.len().saturating_sub(budget);
        if surplus > 0 {
            let all = self.entries.iter().map(|(key, entry)| (age(&entry.value), key.clone()));
            let all = all.collect();
            self.remove_oldest(all, surplus);
        }
    }

    /// Removes so many of these entries, of which there are more than none.
    fn remove_oldest<A: Ord + Copy>(&mut self, mut of: Vec<(A, K)>, count: usize) {
        of.select_nth_unstable_by_key(count - 1, |(age, _)| *age);
        of.truncate(count);
        for (_, key) in of {
            self.remove(&key);
        }
    }

    /// How many entries an owner may keep so that all together keep so many: who has fewer loses none.
    fn fair_share(&self, mut budget: usize) -> usize {
        let mut counts: Vec<_> = self.counts.values().copied().collect();
        counts.sort_unstable();
        let mut left = counts.len();
        for count in counts {
            if count * left > budget {
                return budget / left;
            }
            budget -= count;
            left -= 1;
        }
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_makes_room() {
        let mut cache = FairCache::new(1000);
        for number in 0..10 {
            cache.get_or_insert((1, format!("small {number}")), || 0, |age| *age);
        }

        for number in 0..5000 {
            cache.get_or_insert((2, format!("large {number}")), || number, |age| *age);
        }

        assert!(cache.entries.len() <= 1000);
        assert!((0..10).all(|number| cache.get(&format!("small {number}")).is_some()));
        assert!(cache.get(&"large 4999".to_owned()).is_some(), "the newest stays");
        assert!(cache.get(&"large 0".to_owned()).is_none());
        assert_eq!(cache.counts.values().sum::<usize>(), cache.entries.len());
    }

    #[test]
    fn where_there_are_more_owners_than_room_the_newest_entries_stay() {
        let mut cache = FairCache::new(100);
        for number in 0..1000 {
            cache.get_or_insert((number, number), || number, |age| *age);
        }

        assert!(cache.entries.len() <= 100, "{}", cache.entries.len());
        assert!(cache.get(&999).is_some() && cache.get(&0).is_none());
        assert!(cache.entries.len() > 80, "all are not thrown out");
    }

    #[test]
    fn counts_follow_what_is_removed() {
        let mut cache = FairCache::new(10);
        for number in 0..8 {
            cache.get_or_insert((number % 2, number), || number, |age| *age);
        }

        cache.remove(&1);
        cache.retain(|number| number % 2 == 0);

        assert_eq!(cache.counts, HashMap::from([(0, 4)]));
        assert_eq!(cache.iter().count(), 4);
    }
}
