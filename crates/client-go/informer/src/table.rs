use std::{collections::BTreeSet, hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};
use kcm_meta::{Object, ObjectKey};

use crate::index::{Index, IndexName, Indexers, Scratch, SlotId};

/// Objects by key and their indexes.
///
/// Objects are stored in numbered slots. The key table and the indexes refer to an object by its slot, so that an entry
/// takes four bytes. An object that changes keeps its slot, and an index whose values do not change is not modified.
///
/// Objects are listed in the order of their slots, which does not depend on the seed of the hash. Decisions of controllers
/// and simulations are therefore reproducible.
pub(crate) struct Table<K> {
    slots: Vec<Option<Slot<K>>>,
    free: Vec<SlotId>,
    ids: HashTable<SlotId>,
    // Seeded at random, because users choose the names of objects.
    hasher: DefaultHashBuilder,
    indexes: Vec<Index<K>>,
    scratch: Scratch,
    /// `true` if the last object that was stored has no namespace.
    pub(crate) is_cluster_scoped: bool,
}

struct Slot<K> {
    key: ObjectKey,
    object: Arc<K>,
}

impl<K: Object> Table<K> {
    pub(crate) fn new(indexers: &Indexers<K>) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            indexes: indexers.build(),
            scratch: Scratch::default(),
            is_cluster_scoped: false,
        }
    }

    /// Adds the indexes that are missing.
    pub(crate) fn ensure_indexes(&mut self, indexers: &Indexers<K>) {
        for mut index in indexers.build() {
            if self.indexes.iter().any(|existing| existing.name == index.name) {
                continue;
            }
            for (id, slot) in self.slots.iter().enumerate() {
                let object = slot.as_ref().map(|slot| &*slot.object);
                // The number of slots fits, see `insert`.
                index.update(id as SlotId, None, object, &mut self.scratch);
            }
            self.indexes.push(index);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        let id = self.ids.find(self.hasher.hash_one(key), |&id| holds(&self.slots, id, key))?;
        self.object(*id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        self.slots.iter().flatten().map(|slot| (&slot.key, &slot.object))
    }

    /// Stores `object`. Returns the object that it replaces.
    pub(crate) fn insert(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let Self { slots, free, ids, hasher, indexes, scratch, is_cluster_scoped } = self;
        let key = object.key();
        *is_cluster_scoped = key.namespace.is_empty();
        let entry = ids.entry(
            hasher.hash_one(&key),
            |&id| holds(slots, id, &key),
            |&id| at(slots, id).map_or(0, |slot| hasher.hash_one(&slot.key)),
        );
        let id = match entry {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let id = free.pop().unwrap_or_else(|| {
                    slots.push(None);
                    // 2^32 slots do not fit into memory.
                    (slots.len() - 1) as SlotId
                });
                entry.insert(id);
                id
            }
        };
        let slot = slots.get_mut(id as usize)?;
        // Replaces the key, too: the old one would keep a second copy of its text in memory.
        let old = slot.replace(Slot { key, object }).map(|slot| slot.object);
        let new = slot.as_ref().map(|slot| &*slot.object);
        for index in indexes {
            index.update(id, old.as_deref(), new, scratch);
        }
        old
    }

    /// Removes and returns the object with `key`.
    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let Self { slots, free, ids, hasher, indexes, scratch, .. } = self;
        let entry = ids.find_entry(hasher.hash_one(key), |&id| holds(slots, id, key)).ok()?;
        let (id, _) = entry.remove();
        free.push(id);
        let object = slots.get_mut(id as usize)?.take()?.object;
        for index in indexes {
            index.update(id, Some(&object), None, scratch);
        }
        if ids.is_empty() {
            // A burst of objects leaves no memory behind.
            (*slots, *free, *ids) = (Vec::new(), Vec::new(), HashTable::new());
        }
        Some(object)
    }

    pub(crate) fn by_index<'t>(
        &'t self,
        name: IndexName,
        value: &str,
    ) -> impl Iterator<Item = &'t Arc<K>> + use<'t, K> {
        self.index(name).bucket(value).into_iter().flatten().filter_map(|&id| self.object(id))
    }

    pub(crate) fn index_len(&self, name: IndexName, value: &str) -> usize {
        self.index(name).bucket(value).map_or(0, BTreeSet::len)
    }

    #[cfg(test)]
    pub(crate) fn index_values(&self, name: IndexName) -> Vec<Arc<str>> {
        self.index(name).values().cloned().collect()
    }

    #[expect(clippy::panic, reason = "the name of an index is a constant of the program, not an input")]
    fn index(&self, name: IndexName) -> &Index<K> {
        // There are few indexes: a scan is faster than hashing.
        let index = self.indexes.iter().find(|index| index.name == name);
        index.unwrap_or_else(|| panic!("no index named {:?}", name.0))
    }

    fn object(&self, id: SlotId) -> Option<&Arc<K>> {
        at(&self.slots, id).map(|slot| &slot.object)
    }
}

fn at<K>(slots: &[Option<Slot<K>>], id: SlotId) -> Option<&Slot<K>> {
    slots.get(id as usize)?.as_ref()
}

fn holds<K>(slots: &[Option<Slot<K>>], id: SlotId, key: &ObjectKey) -> bool {
    at(slots, id).is_some_and(|slot| slot.key == *key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_object::{indexers, key, object};

    #[test]
    fn an_empty_table_keeps_no_memory() {
        let mut table = Table::new(&indexers());
        let names: Vec<String> = (0..1000).map(|n| format!("object-{n}")).collect();
        for name in &names {
            table.insert(Arc::new(object(name)));
        }
        for name in &names {
            assert!(table.remove(&key(name)).is_some());
        }
        assert_eq!((table.slots.capacity(), table.free.capacity(), table.ids.capacity()), (0, 0, 0));
        table.insert(Arc::new(object("again")));
        assert_eq!(table.iter().count(), 1);
    }
}
