use std::{collections::BTreeSet, fmt, sync::Arc};

use hashbrown::HashMap;
use kcm_meta::Object;

/// Name of an index.
///
/// Define it as a constant next to the function that computes the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexName(pub &'static str);

impl IndexName {
    /// Index by namespace. See [`Indexers::with_namespace`].
    pub const NAMESPACE: Self = Self("namespace");
}

/// Indexes of a store: for each, the function that computes the values of an object.
///
/// The functions must be pure: to find the index entries of an object, the store computes the values of its former state
/// again. They run while the store is locked and must not access it.
///
/// Upstream counterpart: `cache.Indexers`.
pub struct Indexers<K>(Vec<(IndexName, IndexFn<K>)>);

type IndexFn<K> = Arc<dyn Fn(&K, &mut Vec<Arc<str>>) + Send + Sync>;

impl<K> Indexers<K> {
    /// Creates an empty set of indexes.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an index with at most one value per object. Replaces an index of the same name.
    ///
    /// The index entry shares the text of the returned [`Arc`] with the object.
    #[must_use]
    pub fn with<F>(self, name: IndexName, value: F) -> Self
    where
        F: Fn(&K) -> Option<Arc<str>> + Send + Sync + 'static,
    {
        self.with_many(name, move |object, values| values.extend(value(object)))
    }

    /// Adds an index with any number of values per object: those that `values` appends to its second argument. Replaces an
    /// index of the same name.
    #[must_use]
    pub fn with_many<F>(mut self, name: IndexName, values: F) -> Self
    where
        F: Fn(&K, &mut Vec<Arc<str>>) + Send + Sync + 'static,
    {
        self.0.retain(|(existing, _)| *existing != name);
        self.0.push((name, Arc::new(values)));
        self
    }

    /// Adds the index [`IndexName::NAMESPACE`].
    #[must_use]
    pub fn with_namespace(self) -> Self
    where
        K: Object,
    {
        self.with(IndexName::NAMESPACE, |object| Some(object.key().namespace))
    }

    /// Adds the indexes of `others` whose names are not in use.
    pub(crate) fn extend(&mut self, others: Self) {
        for other in others.0 {
            if !self.0.iter().any(|(existing, _)| *existing == other.0) {
                self.0.push(other);
            }
        }
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

/// Number of an object's slot in a table.
pub(crate) type SlotId = u32;

/// Slots by index value.
///
/// A bucket is an ordered set of four-byte slot numbers. An entry takes few bytes, is removed in O(log n) from any bucket,
/// and objects are listed in the same order in every run.
pub(crate) struct Index<K> {
    pub(crate) name: IndexName,
    values: IndexFn<K>,
    buckets: HashMap<Arc<str>, BTreeSet<SlotId>>,
}

/// Buffers for the index values of an object before and after a change. They are reused to avoid allocations.
#[derive(Default)]
pub(crate) struct Scratch {
    before: Vec<Arc<str>>,
    after: Vec<Arc<str>>,
}

impl<K> Index<K> {
    pub(crate) fn bucket(&self, value: &str) -> Option<&BTreeSet<SlotId>> {
        self.buckets.get(value)
    }

    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.buckets.keys()
    }

    /// Updates the entries of a slot whose object changes from `before` to `after`.
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
        // Most changes of an object do not change its owner or namespace.
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
            // Values such as owners' UIDs do not return, so empty buckets would accumulate.
            if bucket.is_empty() {
                self.buckets.remove(value);
            }
        }
    }
}
