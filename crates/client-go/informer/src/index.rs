use std::{collections::BTreeSet, fmt, sync::Arc};

use hashbrown::HashMap;

use crate::Object;

/// What an index is called.
///
/// Make it a constant beside the function that computes it, and refer to it by that constant alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexName(pub &'static str);

impl IndexName {
    /// By namespace, as [`Indexers::with_namespace`] keeps it.
    pub const NAMESPACE: Self = Self("namespace");
}

/// The indexes of a store: a name for each, and the values under which an object is found in it.
///
/// The functions must be pure: the store asks again for the values of an object's former state to find its old
/// entries. They run under the store's lock and must not call the store.
///
/// Upstream counterpart: `cache.Indexers`.
pub struct Indexers<K>(Vec<(IndexName, IndexFn<K>)>);

type IndexFn<K> = Arc<dyn Fn(&K, &mut Vec<Arc<str>>) + Send + Sync>;

impl<K> Indexers<K> {
    /// No index.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an index in which an object is found under one value, or not at all.
    ///
    /// Return an [`Arc`] that the object holds already, and the index entry costs no copy of the text. A second
    /// index of the same name replaces the first.
    #[must_use]
    pub fn with<F>(self, name: IndexName, value: F) -> Self
    where
        F: Fn(&K) -> Option<Arc<str>> + Send + Sync + 'static,
    {
        self.with_many(name, move |object, values| values.extend(value(object)))
    }

    /// Adds an index in which an object can be found under several values: those that `values` pushes.
    ///
    /// A second index of the same name replaces the first.
    #[must_use]
    pub fn with_many<F>(mut self, name: IndexName, values: F) -> Self
    where
        F: Fn(&K, &mut Vec<Arc<str>>) + Send + Sync + 'static,
    {
        self.0.retain(|(existing, _)| *existing != name);
        self.0.push((name, Arc::new(values)));
        self
    }

    /// Adds the index [`IndexName::NAMESPACE`], which [`Store::list_namespace`](crate::Store::list_namespace)
    /// uses.
    #[must_use]
    pub fn with_namespace(self) -> Self
    where
        K: Object,
    {
        self.with(IndexName::NAMESPACE, |object| Some(object.key().namespace))
    }

    pub(crate) fn build(&self) -> Vec<Index<K>> {
        self.0
            .iter()
            .map(|(name, values)| Index { name: *name, values: Arc::clone(values), buckets: HashMap::new() })
            .collect()
    }
}

impl<K> Default for Indexers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Indexers<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Indexers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Where an object is in a table.
pub(crate) type SlotId = u32;

/// One index: slots by value.
///
/// A bucket is an ordered set of four-byte numbers: an entry costs few bytes, goes in O(log n) even from a
/// namespace with everything in it, and lists in the same order on every run.
pub(crate) struct Index<K> {
    pub(crate) name: IndexName,
    values: IndexFn<K>,
    buckets: HashMap<Arc<str>, BTreeSet<SlotId>>,
}

/// Room for the values of an object before and after a change, kept so that a change allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    before: Vec<Arc<str>>,
    after: Vec<Arc<str>>,
}

impl<K> Index<K> {
    pub(crate) fn bucket(&self, value: &str) -> Option<&BTreeSet<SlotId>> {
        self.buckets.get(value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.buckets.keys()
    }

    /// Moves `slot` from where it was found to where it is found now.
    pub(crate) fn update(
        &mut self,
        slot: SlotId,
        before: Option<&K>,
        after: Option<&K>,
        scratch: &mut Scratch,
    ) {
        if let Some(before) = before {
            (self.values)(before, &mut scratch.before);
        }
        if let Some(after) = after {
            (self.values)(after, &mut scratch.after);
        }
        // By far the most changes of an object leave its owner and its namespace alone.
        if scratch.before != scratch.after {
            for value in &scratch.before {
                self.remove(value, slot);
            }
            for value in &scratch.after {
                self.buckets.entry_ref(value).or_default().insert(slot);
            }
        }
        scratch.before.clear();
        scratch.after.clear();
    }

    fn remove(&mut self, value: &str, slot: SlotId) {
        if let Some(bucket) = self.buckets.get_mut(value) {
            bucket.remove(&slot);
            // Owners come and go for ever; an empty bucket for each would be a leak.
            if bucket.is_empty() {
                self.buckets.remove(value);
            }
        }
    }
}
