//! Reading our own writes: what the server answered, until the caches have caught up.
//!
//! DEVIATION: upstream's Deployment controller reads its caches alone. A sync that begins before the watch has told of
//! the last one's writes then sends writes that are refused: an update of what was updated already, or the creation
//! of a ReplicaSet that is there. The ReplicaSet controller waits for its caches instead (US-3.7), because its
//! decisions count pods that others change; here the answers are all there is to know.

use std::{
    cmp::Ordering,
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use kcm_api::{Deployment, ObjectKey, ReplicaSet};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{compare_versions, index::claimable_replica_sets};
use kcm_informer::{Object, StoreReadGuard};
use parking_lot::Mutex;

/// The answers to writes, by Deployment. Only one sync of a Deployment runs at a time, so nobody waits here.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<HashMap<ObjectKey, Written>>);

/// What was written for one Deployment, and not yet seen in a cache.
#[derive(Debug, Default)]
struct Written {
    deployment: Option<Arc<Deployment>>,
    replica_sets: Vec<Arc<ReplicaSet>>,
}

impl Written {
    fn is_empty(&self) -> bool {
        self.deployment.is_none() && self.replica_sets.is_empty()
    }
}

impl OwnWrites {
    /// Takes note of a Deployment as the server has it now.
    pub(crate) fn deployment(&self, deployment: &Arc<Deployment>) {
        let key = deployment.metadata.key();
        self.0.lock().entry(key).or_default().deployment = Some(Arc::clone(deployment));
    }

    /// Takes note of a ReplicaSet of the Deployment at `key` as the server has it now.
    pub(crate) fn replica_set(&self, key: &ObjectKey, set: &Arc<ReplicaSet>) {
        let mut records = self.0.lock();
        let sets = &mut records.entry(key.clone()).or_default().replica_sets;
        sets.retain(|written| written.uid() != set.uid());
        sets.push(Arc::clone(set));
    }

    /// Removes a ReplicaSet that the API server does not have any more.
    pub(crate) fn forget_replica_set(&self, key: &ObjectKey, replica_set: &ObjectKey) {
        let mut records = self.0.lock();
        let Entry::Occupied(mut entry) = records.entry(key.clone()) else { return };
        entry.get_mut().replica_sets.retain(|written| written.metadata.key() != *replica_set);
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Forgets a Deployment that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }

    /// The newer of the Deployment that the cache holds and the one that was written.
    pub(crate) fn newest(&self, cached: Arc<Deployment>) -> Arc<Deployment> {
        let mut records = self.0.lock();
        let Entry::Occupied(mut entry) = records.entry(cached.metadata.key()) else { return cached };
        let written = &mut entry.get_mut().deployment;
        if written.as_ref().is_some_and(|written| is_ahead(&**written, &*cached)) {
            return written.clone().unwrap_or(cached);
        }
        *written = None;
        if entry.get().is_empty() {
            entry.remove();
        }
        cached
    }

    /// Returns the ReplicaSets that the Deployment `owner` may claim: those that it manages and the orphans of its
    /// namespace.
    ///
    /// The cache is read in one state. Each UID and each name is returned once, in the newer of the cached version and the
    /// one that was written: an object that was created under the name of a cached one replaces it.
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
            // Not seen yet, unless the cache has seen more than that: then it is gone.
            None => {
                let seen = cache.last_sync_resource_version();
                seen.is_none_or(|seen| is_newer(set.resource_version(), seen))
            }
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

/// Whether `written` is a newer state of the very object that `cached` is.
fn is_ahead<K: Object>(written: &K, cached: &K) -> bool {
    written.uid() == cached.uid() && is_newer(written.resource_version(), cached.resource_version())
}

/// Versions that cannot be compared say nothing, and the cache is believed.
fn is_newer(a: &str, b: &str) -> bool {
    compare_versions(a, b) == Some(Ordering::Greater)
}

#[cfg(test)]
mod tests;
