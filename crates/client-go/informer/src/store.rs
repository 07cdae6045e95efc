//! The objects as they were last seen: read by many, written by one.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kcm_api::ObjectKey;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::{IndexName, Indexers, Object, table::Table};

/// The reading side of a store. Clones are cheap and see the same objects.
///
/// Objects come as [`Arc`]s, as they are in the store, and nothing gives a `&mut`: what has been read does not
/// change, and whoever wants a changed object makes one. Lists come in the order in which the objects first
/// came, with the places of deleted ones taken again; nothing may depend on it (US-2.1).
///
/// Upstream counterpart: `cache.Indexer` as controllers see it, and the listers.
pub struct Store<K> {
    state: Arc<RwLock<State<K>>>,
}

/// The writing side of a store. There is one, and it cannot be cloned.
///
/// An informer has its own; make one to test what reads a store.
pub struct StoreWriter<K> {
    state: Arc<RwLock<State<K>>>,
    indexers: Indexers<K>,
}

// One lock over one struct, because objects, indexes and the version must change together: a reader that finds
// a version must find what it covers, and an object must never be in the map and missing from its owner's
// index. A concurrent map such as dashmap cannot give that, and would buy little: with 100,000 keys and a writer
// beside two readers it was measured to read 11 M/s to this lock's 9 M/s, and to write less than half as fast.
// Sections are short, and nothing under the lock calls out but the index functions.
struct State<K> {
    table: Table<K>,
    /// Empty until there is one.
    resource_version: String,
    synced: bool,
}

/// Read access to one state of a store.
///
/// The writer waits while the guard exists: keep it for a few lookups, and never while another store is read or the same
/// store is read a second time.
pub struct StoreReadGuard<'a, K>(RwLockReadGuard<'a, State<K>>);

impl<'a, K: Object> StoreReadGuard<'a, K> {
    /// Returns the object at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.0.table.get(key)
    }

    /// Returns the objects found under `value` in `index`, without copying them. A step takes constant time.
    ///
    /// Empty if the store has no such index, which is a defect of the caller and caught in debug builds.
    pub fn by_index<'s>(
        &'s self,
        index: IndexName,
        value: &str,
    ) -> impl Iterator<Item = &'s Arc<K>> + use<'s, 'a, K> {
        debug_assert!(self.0.table.has_index(index), "no index named {:?}", index.0);
        self.0.table.by_index(index, value)
    }

    /// Newest version that the store has seen. See [`Store::last_sync_resource_version`].
    pub fn last_sync_resource_version(&self) -> Option<&str> {
        Some(&*self.0.resource_version).filter(|version| !version.is_empty())
    }
}

impl<K: Object> fmt::Debug for StoreReadGuard<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreReadGuard")
            .field("objects", &self.0.table.len())
            .field("resource_version", &self.0.resource_version)
            .finish()
    }
}

impl<K: Object> Store<K> {
    /// Locks the current state for several lookups. Two calls of other methods may see two states.
    pub fn read(&self) -> StoreReadGuard<'_, K> {
        StoreReadGuard(self.state.read())
    }

    /// The object at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.state.read().table.get(key).cloned()
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        let state = self.state.read();
        let mut objects = Vec::with_capacity(state.table.len());
        objects.extend(state.table.iter().map(|(_, object)| Arc::clone(object)));
        objects
    }

    /// Up to `most` objects, from all over the store: what they have in common, most of the others will have, too.
    pub fn sample(&self, most: usize) -> Vec<Arc<K>> {
        let state = self.state.read();
        let step = state.table.len().div_ceil(most.max(1)).max(1);
        state.table.iter().step_by(step).take(most).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects in `namespace`: by the index [`IndexName::NAMESPACE`] if the store has it, else by looking at
    /// every object.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.state.read();
        if state.table.has_index(IndexName::NAMESPACE) {
            return state.table.by_index(IndexName::NAMESPACE, namespace).cloned().collect();
        }
        let objects = state.table.iter().filter(|(key, _)| &*key.namespace == namespace);
        objects.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().table.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects found under `value` in `index`, in time proportional to their number.
    ///
    /// Nothing, where the store has no such index; that is a defect of the caller, and caught in debug builds.
    pub fn by_index(&self, index: IndexName, value: &str) -> Vec<Arc<K>> {
        let state = self.read();
        let mut objects = Vec::with_capacity(state.0.table.index_len(index, value));
        objects.extend(state.by_index(index, value).cloned());
        objects
    }

    /// How many objects [`by_index`](Self::by_index) would find.
    pub fn index_len(&self, index: IndexName, value: &str) -> usize {
        let state = self.state.read();
        debug_assert!(state.table.has_index(index), "no index named {:?}", index.0);
        state.table.index_len(index, value)
    }

    /// The values under which at least one object is found in `index`, in no order.
    pub fn index_values(&self, index: IndexName) -> Vec<Arc<str>> {
        let state = self.state.read();
        debug_assert!(state.table.has_index(index), "no index named {:?}", index.0);
        state.table.index_values(index)
    }

    /// The newest version that the store has seen, be it of an object, a bookmark or a whole list.
    ///
    /// All that happened up to it is in the store when it is returned: compare it with the version of a write
    /// of one's own to know whether the store reflects that write (US-3.7).
    pub fn last_sync_resource_version(&self) -> Option<String> {
        self.read().last_sync_resource_version().map(str::to_owned)
    }

    /// Whether the store has held a complete state.
    pub fn is_synced(&self) -> bool {
        self.state.read().synced
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K: Object> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read();
        f.debug_struct("Store")
            .field("objects", &state.table.len())
            .field("resource_version", &state.resource_version)
            .field("synced", &state.synced)
            .finish()
    }
}

impl<K: Object> StoreWriter<K> {
    /// An empty store.
    pub fn new(indexers: Indexers<K>) -> Self {
        let state = State { table: Table::new(&indexers), resource_version: String::new(), synced: false };
        Self { state: Arc::new(RwLock::new(state)), indexers }
    }

    /// The reading side.
    pub fn reader(&self) -> Store<K> {
        Store { state: Arc::clone(&self.state) }
    }

    /// Puts `object` in, with its version, and returns what was at its key.
    pub fn apply(&mut self, object: Arc<K>) -> Option<Arc<K>> {
        let mut state = self.state.write();
        state.advance(object.resource_version());
        state.table.insert(object)
    }

    /// Takes out what is at `key`; `resource_version` is the version at which it went, if known.
    pub fn remove(&mut self, key: &ObjectKey, resource_version: Option<&str>) -> Option<Arc<K>> {
        let mut state = self.state.write();
        state.advance(resource_version.unwrap_or_default());
        state.table.remove(key)
    }

    /// Notes that nothing happened up to `resource_version`.
    pub fn bookmark(&mut self, resource_version: &str) {
        self.state.write().advance(resource_version);
    }

    /// Begins a new state of the whole. The store does not change until [`commit`](Self::commit).
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot { current: self.reader(), table: Table::new(&self.indexers), kept: BTreeSet::new() }
    }

    /// Makes `snapshot`, a state of the whole at `resource_version`, the state of the store, in one step.
    ///
    /// Readers wait for a swap, not for the building of the tables.
    pub fn commit(&mut self, snapshot: Snapshot<K>, resource_version: &str) -> Replaced<K> {
        let Snapshot { mut table, kept, .. } = snapshot;
        {
            let state = self.state.read();
            for key in kept {
                if let (None, Some(object)) = (table.get(&key), state.table.get(&key)) {
                    table.insert(Arc::clone(object));
                }
            }
        }
        let old = {
            let mut state = self.state.write();
            state.advance(resource_version);
            state.synced = true;
            std::mem::replace(&mut state.table, table)
        };
        let state = self.state.read();
        let gone = old.iter().filter(|(key, _)| state.table.get(key).is_none());
        let present = state.table.iter();
        Replaced {
            deleted: gone.map(|(_, object)| Arc::clone(object)).collect(),
            present: present.map(|(key, new)| (old.get(key).cloned(), Arc::clone(new))).collect(),
        }
    }
}

impl<K: Object> fmt::Debug for StoreWriter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreWriter").field(&self.reader()).finish()
    }
}

impl<K> State<K> {
    fn advance(&mut self, resource_version: &str) {
        if !resource_version.is_empty() {
            self.resource_version.clear();
            self.resource_version.push_str(resource_version);
        }
    }
}

/// A state of the whole in the making: from a list, or from the initial events of a watch.
pub struct Snapshot<K> {
    current: Store<K>,
    table: Table<K>,
    kept: BTreeSet<ObjectKey>,
}

impl<K: Object> Snapshot<K> {
    /// Puts `object` in.
    ///
    /// If the store has the very same version of it, that one is taken and `object` dropped: so a relist needs
    /// no second copy of everything.
    pub fn insert(&mut self, object: K) {
        let version = object.resource_version();
        let same = |known: &Arc<K>| known.resource_version() == version && known.uid() == object.uid();
        let known = if version.is_empty() { None } else { self.current.get(&object.key()).filter(same) };
        self.table.insert(known.unwrap_or_else(|| Arc::new(object)));
    }

    /// Takes out what is at `key`.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.table.remove(key);
        self.kept.remove(key);
    }

    /// Notes that something is at `key`, but nobody can say what: what the store has there stays.
    pub fn keep(&mut self, key: ObjectKey) {
        self.kept.insert(key);
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it has no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Object> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("objects", &self.len()).field("kept", &self.kept).finish()
    }
}

/// What a [`commit`](StoreWriter::commit) changed.
#[derive(Debug)]
pub struct Replaced<K> {
    /// What was in the store and is not any more, as it was last known.
    pub deleted: Vec<Arc<K>>,
    /// What is in the store now, with what was at its key. Unchanged objects are among these.
    pub present: Vec<(Option<Arc<K>>, Arc<K>)>,
}

#[cfg(test)]
mod tests;
