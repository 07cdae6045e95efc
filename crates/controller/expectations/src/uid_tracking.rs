//! Expected deletions by object.

use std::{borrow::Borrow, collections::HashSet, fmt::Display, hash::Hash, sync::Arc, time::Duration};

use dashmap::{DashMap, Entry};
use kcm_clock::Clock;
use tracing::error;

use crate::{ControllerExpectations, Key};

/// [`ControllerExpectations`] that count each expected deletion once, and no other deletions.
///
/// `D` identifies the deleted object. Upstream uses `namespace/name`, despite the name of the type (US-3.1);
/// [`OwnWrites`](crate::OwnWrites) uses UIDs.
///
/// Upstream counterpart: `controller.UIDTrackingControllerExpectations`.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_clock::RealClock;
/// use kcm_expectations::UidTrackingExpectations;
///
/// let expectations = UidTrackingExpectations::new(Arc::new(RealClock::new()));
/// let key = "default/web";
/// expectations.expect_deletions(&key, ["default/web-1"]);
/// // The deletion of another pod.
/// expectations.deletion_observed(&key, &"default/web-2");
/// assert!(!expectations.satisfied(&key));
/// expectations.deletion_observed(&key, &"default/web-1");
/// assert!(expectations.satisfied(&key));
/// ```
#[derive(Debug)]
pub struct UidTrackingExpectations<K: Key, D: Eq + Hash> {
    counts: ControllerExpectations<K>,
    /// Expected deletions by key. If an operation changes this and `counts`, it locks the entry of this map first.
    ///
    /// [`expect_creations`](Self::expect_creations) does not clear the set, as upstream. Deletions that are observed
    /// afterwards make the count negative, which blocks nothing.
    deletions: DashMap<K, HashSet<D>>,
}

impl<K: Key, D: Eq + Hash + Display> UidTrackingExpectations<K, D> {
    /// Returns a store without expectations.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { counts: ControllerExpectations::new(clock), deletions: DashMap::new() }
    }

    /// Expects `creations` creations and no deletions. Replaces the counts of `key`.
    pub fn expect_creations(&self, key: &K, creations: usize) {
        self.counts.expect_creations(key, creations);
    }

    /// Expects exactly `deletions` and no creations. Replaces the expectations of `key`.
    ///
    /// If deletions of an earlier call are still expected, an error is logged.
    pub fn expect_deletions(&self, key: &K, deletions: impl IntoIterator<Item = D>) {
        let deletions: HashSet<D> = deletions.into_iter().collect();
        let count = deletions.len();
        // Locked until the count is set: a deletion observed before would lower the previous count.
        let mut expected = self.deletions.entry(key.clone()).or_default();
        if !expected.is_empty() {
            error!(%key, leftover = expected.len(), "clobbering existing delete keys");
        }
        *expected = deletions;
        self.counts.expect_deletions(key, count);
    }

    /// Lowers the expected creations by one. Has no effect if `key` has no expectations.
    pub fn creation_observed(&self, key: &K) {
        self.counts.creation_observed(key);
    }

    /// Records that the request of one expected creation succeeded.
    pub fn creation_answered(&self, key: &K) {
        self.counts.creation_answered(key);
    }

    /// Lowers the expected creations to those whose requests have not returned.
    ///
    /// See [`ControllerExpectations::observe_answered_creations`].
    pub fn observe_answered_creations(&self, key: &K) {
        self.counts.observe_answered_creations(key);
    }

    /// Returns the keys with unfulfilled expectations, expired ones included.
    pub fn unfulfilled(&self) -> Vec<K> {
        self.counts.unfulfilled()
    }

    /// Lowers the expected deletions by one if `deleted` is expected and was not observed yet.
    pub fn deletion_observed<Q: Eq + Hash + ?Sized>(&self, key: &K, deleted: &Q)
    where
        D: Borrow<Q>,
    {
        if let Some(mut expected) = self.deletions.get_mut(key)
            && expected.remove(deleted)
        {
            self.counts.deletion_observed(key);
        }
    }

    /// Lowers the expectations by `add` creations and `del` deletions that failed or were not requested.
    pub fn lower(&self, key: &K, add: i64, del: i64) {
        self.counts.lower(key, add, del);
    }

    /// Returns `true` if the controller can create and delete objects for `key`. See [`ControllerExpectations::satisfied`].
    pub fn satisfied(&self, key: &K) -> bool {
        self.counts.satisfied(key)
    }

    /// Returns the time until the expectations expire. See [`ControllerExpectations::expires_in`].
    pub fn expires_in(&self, key: &K) -> Option<Duration> {
        self.counts.expires_in(key)
    }

    /// Returns the expected creations and deletions. `None` if `key` has no expectations.
    pub fn get(&self, key: &K) -> Option<(i64, i64)> {
        self.counts.get(key)
    }

    /// Returns the expected deletions in any order.
    pub fn pending_deletions(&self, key: &K) -> Vec<D>
    where
        D: Clone,
    {
        self.deletions.get(key).map(|set| set.iter().cloned().collect()).unwrap_or_default()
    }

    /// Removes the expectations of `key`.
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
