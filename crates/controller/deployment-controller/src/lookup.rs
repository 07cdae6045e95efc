//! Lookups of ReplicaSets in the cache and the records of own writes.

use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::index::claimable_replica_sets;
use kcm_expectations::WrittenObjects;
use kcm_informer::StoreReadGuard;

/// Returns the ReplicaSets that the Deployment `owner` may claim: those that it controls and the orphans of its
/// namespace, each in the newer of the cached version and the written one.
pub(crate) fn claimable(
    written: &WrittenObjects,
    owner: &OwnerIdentity,
    cache: &StoreReadGuard<'_, ReplicaSet>,
) -> Vec<Arc<ReplicaSet>> {
    let mut sets = claimable_replica_sets(cache, owner).cloned().collect();
    let seen = cache.last_sync_resource_version();
    written.overlay(&owner.key(), &mut sets, |key| cache.get(key), seen, is_observed_at_zero);
    sets
}

/// Returns `true` if the ReplicaSet controller reports that it has observed 0 replicas.
fn is_observed_at_zero(set: &ReplicaSet) -> bool {
    set.replicas() == 0 && set.metadata.generation <= set.status.observed_generation
}

#[cfg(test)]
mod tests;
