//! Objects that the API server returned, until the caches contain them.
//!
//! DEVIATION: upstream's Deployment controller reads its caches only. A sync that starts before the cache contains the
//! writes of the last one sends the same update or create again, and fails with 409. The ReplicaSet controller waits for
//! its caches instead (US-3.7), because its decisions depend on pods that other clients change.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use kcm_api::{Deployment, ObjectKey, ReplicaSet};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::index::claimable_replica_sets;
use kcm_informer::{Object, StoreReadGuard, is_newer};
use kcm_runtime::WriteRecords;
use parking_lot::Mutex;

/// Returned objects by Deployment. The lock is not contended for one Deployment: it has one sync at a time.
#[derive(Debug, Default)]
pub(crate) struct WrittenObjects(Mutex<HashMap<ObjectKey, Written>>);

/// Objects of one Deployment that were written and that the cache does not contain yet.
#[derive(Debug, Default)]
struct Written {
    deployment: Option<Arc<Deployment>>,
    replica_sets: Vec<Arc<ReplicaSet>>,
    /// ReplicaSets that were sent with 0 replicas, until the ReplicaSet controller has observed that.
    scaled_down: Vec<Arc<ReplicaSet>>,
}

impl Written {
    fn is_empty(&self) -> bool {
        self.deployment.is_none() && self.replica_sets.is_empty() && self.scaled_down.is_empty()
    }
}

impl WrittenObjects {
    /// Stores a Deployment that the API server returned.
    pub(crate) fn deployment(&self, deployment: &Arc<Deployment>) {
        let key = deployment.metadata.key();
        self.0.lock().entry(key).or_default().deployment = Some(Arc::clone(deployment));
    }

    /// Stores a ReplicaSet of the Deployment at `key` that the API server returned.
    pub(crate) fn replica_set(&self, key: &ObjectKey, set: &Arc<ReplicaSet>) {
        let mut records = self.0.lock();
        let Written { replica_sets: sets, scaled_down, .. } = records.entry(key.clone()).or_default();
        if set.replicas() > 0 {
            scaled_down.retain(|sent| sent.metadata.uid != set.metadata.uid);
        }
        sets.retain(|written| written.metadata.uid != set.metadata.uid);
        sets.push(Arc::clone(set));
    }

    /// Records that a ReplicaSet of the Deployment at `key` was sent with 0 replicas, with or without a response.
    pub(crate) fn scaled_down(&self, key: &ObjectKey, sent: &Arc<ReplicaSet>) {
        let mut records = self.0.lock();
        let sets = &mut records.entry(key.clone()).or_default().scaled_down;
        if !sets.iter().any(|set| set.metadata.uid == sent.metadata.uid) {
            sets.push(Arc::clone(sent));
        }
    }

    /// Returns the UIDs of ReplicaSets that were scaled to 0, if the cache did not report that as observed at the last call
    /// of [`claimable`](Self::claimable).
    pub(crate) fn unobserved_scale_downs(&self, key: &ObjectKey) -> BTreeSet<Arc<str>> {
        let records = self.0.lock();
        let sets = records.get(key).map_or(&[][..], |written| &written.scaled_down);
        sets.iter().map(|set| Arc::clone(&set.metadata.uid)).collect()
    }

    /// Returns the Deployments with ReplicaSets that the cache did not contain at the last sync.
    pub(crate) fn with_replica_sets(&self) -> Vec<ObjectKey> {
        let records = self.0.lock();
        let waiting = records.iter().filter(|(_, written)| !written.replica_sets.is_empty());
        waiting.map(|(key, _)| key.clone()).collect()
    }

    /// Removes a ReplicaSet that does not exist any more.
    pub(crate) fn forget_replica_set(&self, key: &ObjectKey, replica_set: &ObjectKey) {
        let mut records = self.0.lock();
        let Entry::Occupied(mut entry) = records.entry(key.clone()) else { return };
        entry.get_mut().replica_sets.retain(|written| written.metadata.key() != *replica_set);
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// Removes all objects. For a cache that was restored from a backup: its versions may never reach theirs.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Removes a deleted Deployment and its ReplicaSets.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }

    /// Returns the newer of the cached Deployment and the stored one.
    pub(crate) fn newest(&self, cached: Arc<Deployment>) -> Arc<Deployment> {
        let mut records = self.0.lock();
        let Entry::Occupied(mut entry) = records.entry(cached.metadata.key()) else { return cached };
        let written = &mut entry.get_mut().deployment;
        if written.as_ref().is_some_and(|written| is_newer_version(&**written, &*cached)) {
            return written.clone().unwrap_or(cached);
        }
        *written = None;
        if entry.get().is_empty() {
            entry.remove();
        }
        cached
    }

    /// Returns the ReplicaSets that the Deployment `owner` may claim: those that it controls and the orphans of its
    /// namespace.
    ///
    /// Each UID and each name is returned once, in the newer of the cached version and the stored one. A stored ReplicaSet
    /// replaces a cached one with the same name and another UID.
    pub(crate) fn claimable(
        &self,
        owner: &OwnerIdentity,
        cache: &StoreReadGuard<'_, ReplicaSet>,
    ) -> Vec<Arc<ReplicaSet>> {
        let mut sets: Vec<_> = claimable_replica_sets(cache, owner).cloned().collect();
        let mut records = self.0.lock();
        let Entry::Occupied(mut entry) = records.entry(owner.key()) else { return sets };
        let written = entry.get_mut();
        written.replica_sets.retain(|set| match cache.get(&set.metadata.key()) {
            Some(cached) => is_newer(set.resource_version(), cached.resource_version()),
            // If the cache is newer than the write, the ReplicaSet was deleted since.
            None => {
                let seen = cache.last_sync_resource_version();
                seen.is_none_or(|seen| is_newer(set.resource_version(), seen))
            }
        });
        let Written { replica_sets, scaled_down, .. } = written;
        scaled_down.retain(|sent| {
            let is_same = |set: &&Arc<ReplicaSet>| set.metadata.uid == sent.metadata.uid;
            // Only the cache counts: the ReplicaSet controller reads it as well.
            let cached = cache.get(&sent.metadata.key()).filter(is_same);
            replica_sets.iter().any(|set| is_same(&set))
                || cached.is_some_and(|set| !is_observed_at_zero(set))
        });
        for set in &written.replica_sets {
            match sets.iter_mut().find(|cached| cached.metadata.name == set.metadata.name) {
                Some(cached) => *cached = Arc::clone(set),
                None => sets.push(Arc::clone(set)),
            }
        }
        if written.is_empty() {
            entry.remove();
        }
        sets
    }
}

/// Returns `true` if the ReplicaSet controller reports that it has observed 0 replicas.
fn is_observed_at_zero(set: &ReplicaSet) -> bool {
    set.replicas() == 0 && set.metadata.generation <= set.status.observed_generation
}

/// Returns `true` if `written` is a newer version of the object `cached`.
fn is_newer_version<K: Object>(written: &K, cached: &K) -> bool {
    written.uid() == cached.uid() && is_newer(written.resource_version(), cached.resource_version())
}

impl WriteRecords for WrittenObjects {
    fn restored(&self) {
        self.clear();
    }

    fn relisted(&self) -> Vec<ObjectKey> {
        self.with_replica_sets()
    }
}

#[cfg(test)]
mod tests;
