use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Capacity of each cache of the correlator.
pub(crate) const MAX_CACHE_ENTRIES: usize = 4096;

/// Map of limited size. An insertion above the capacity removes the least recently used entry.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    capacity: usize,
    /// Values with the number of their last use.
    entries: HashMap<K, (u64, V)>,
    /// Keys by the number of their last use: exactly those of `entries`.
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Returns the value of `key` and marks it as used.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        if let Some(key) = self.by_use.remove(used) {
            self.uses += 1;
            *used = self.uses;
            self.by_use.insert(self.uses, key);
        }
        Some(value)
    }

    /// Sets the value of `key` and marks it as used.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(known) = self.get_mut(&key) {
            *known = value;
            return;
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_is_removed() {
        let mut map = Lru::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        assert_eq!(map.get_mut(&"a"), Some(&mut 1));
        map.insert("c", 3);
        assert_eq!(map.get_mut(&"b"), None);
        assert_eq!(map.get_mut(&"a"), Some(&mut 1));
        assert_eq!(map.get_mut(&"c"), Some(&mut 3));
    }

    #[test]
    fn replaced_value_does_not_count_twice() {
        let mut map = Lru::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        map.insert("a", 3);
        map.insert("c", 4);
        assert_eq!(map.get_mut(&"a"), Some(&mut 3));
        assert_eq!(map.get_mut(&"b"), None);
        assert_eq!((map.entries.len(), map.by_use.len()), (2, 2));
    }
}
