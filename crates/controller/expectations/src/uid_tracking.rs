//! Which deletions are still to be seen.

use std::{collections::HashSet, fmt::Display, hash::Hash, sync::Arc};

use dashmap::{DashMap, mapref::entry::Entry};
use kcm_clock::Clock;
use tracing::error;

use crate::{ControllerExpectations, Key};

/// [`ControllerExpectations`] that count a deletion only if it is one of those expected, and only once.
///
/// `D` names what is deleted. Upstream calls that a UID and uses `namespace/name` (US-3.1).
///
/// Upstream counterpart: `controller.UIDTrackingControllerExpectations`.
#[derive(Debug)]
pub struct UidTrackingExpectations<K: Key, D: Eq + Hash> {
    counts: ControllerExpectations<K>,
    /// The deletions not seen yet, per key. Where this and `counts` change together, the entry in here is
    /// locked throughout, and always first.
    ///
    /// A set outlives an [`expect_creations`](Self::expect_creations), as upstream's does: deletions that are
    /// seen then still count, and take the deletions below zero, which holds nobody up.
    deletions: DashMap<K, HashSet<D>>,
}

impl<K: Key, D: Eq + Hash + Display> UidTrackingExpectations<K, D> {
    /// Nothing expected of anyone.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { counts: ControllerExpectations::new(clock), deletions: DashMap::new() }
    }

    /// Notes that `creations` are on their way for `key`, and no deletion. Overwrites the counts.
    pub fn expect_creations(&self, key: &K, creations: usize) {
        self.counts.expect_creations(key, creations);
    }

    /// Notes that exactly `deletions` are on their way for `key`, and no creation. Overwrites what was noted.
    ///
    /// A controller does so only when nothing is expected any more; leftovers are an error, which is logged.
    pub fn expect_deletions(&self, key: &K, deletions: impl IntoIterator<Item = D>) {
        let deletions: HashSet<D> = deletions.into_iter().collect();
        let count = deletions.len();
        let entry = self.deletions.entry(key.clone());
        if let Entry::Occupied(leftover) = &entry
            && !leftover.get().is_empty()
        {
            error!(%key, leftover = leftover.get().len(), "clobbering existing delete keys");
        }
        // Held until the count is set, or a deletion seen in between would be counted off the old one.
        let _locked = entry.insert(deletions);
        self.counts.expect_deletions(key, count);
    }

    /// Counts off one creation. Nothing happens when nothing is noted for `key`.
    pub fn creation_observed(&self, key: &K) {
        self.counts.creation_observed(key);
    }

    /// Records that the API server has answered one of the expected creations.
    pub fn creation_answered(&self, key: &K) {
        self.counts.creation_answered(key);
    }

    /// Records that the cache has reached the versions of all creations that were answered.
    ///
    /// See [`ControllerExpectations::observe_answered_creations`].
    pub fn observe_answered_creations(&self, key: &K) {
        self.counts.observe_answered_creations(key);
    }

    /// Keys whose expectations have not been fulfilled, among them those that have expired.
    pub fn unfulfilled(&self) -> Vec<K> {
        self.counts.unfulfilled()
    }

    /// Counts off the deletion of `deleted`, if it is expected for `key` and was not seen yet.
    pub fn deletion_observed(&self, key: &K, deleted: &D) {
        if let Some(mut expected) = self.deletions.get_mut(key)
            && expected.remove(deleted)
        {
            self.counts.deletion_observed(key);
        }
    }

    /// Counts off `add` creations and `del` deletions, below zero if need be.
    pub fn lower(&self, key: &K, add: i64, del: i64) {
        self.counts.lower(key, add, del);
    }

    /// Whether a controller may act for `key`. See [`ControllerExpectations::satisfied`].
    pub fn satisfied(&self, key: &K) -> bool {
        self.counts.satisfied(key)
    }

    /// Creations and deletions still to be seen; `None` when nothing is noted.
    pub fn get(&self, key: &K) -> Option<(i64, i64)> {
        self.counts.get(key)
    }

    /// The deletions not seen yet, in no order.
    pub fn pending_deletions(&self, key: &K) -> Vec<D>
    where
        D: Clone,
    {
        self.deletions.get(key).map(|set| set.iter().cloned().collect()).unwrap_or_default()
    }

    /// Drops all that is noted for `key`, whose object is gone.
    pub fn delete(&self, key: &K) {
        let entry = self.deletions.entry(key.clone());
        self.counts.delete(key);
        if let Entry::Occupied(expected) = entry {
            expected.remove();
        }
    }
}

#[cfg(test)]
mod tests;
