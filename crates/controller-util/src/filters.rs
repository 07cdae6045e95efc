//! Which objects count, and the orders they are put in (US-3.6).

use std::{cmp::Ordering, sync::Arc};

use kcm_api::{Pod, ReplicaSet};

/// The pods that are neither finished nor on their way out.
///
/// Upstream counterpart: `FilterActivePods`.
pub fn active_pods<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> Vec<Arc<Pod>> {
    pods.into_iter().filter(|pod| pod.is_active()).cloned().collect()
}

/// How many of `pods` are on their way out and not finished.
///
/// Upstream counterpart: `CountTerminatingPods`.
pub fn count_terminating_pods<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> usize {
    pods.into_iter().filter(|pod| pod.is_terminating()).count()
}

/// Whether `replica_set` wants any pods.
///
/// Upstream counterpart: the predicate of `FilterActiveReplicaSets`.
pub fn is_active_replica_set(replica_set: &ReplicaSet) -> bool {
    replica_set.replicas() > 0
}

/// Those of `replica_sets` that want any pods, in the order given.
///
/// Upstream counterpart: `FilterActiveReplicaSets`.
pub fn active_replica_sets<'a>(
    replica_sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
) -> Vec<Arc<ReplicaSet>> {
    replica_sets.into_iter().filter(|replica_set| is_active_replica_set(replica_set)).cloned().collect()
}

/// Oldest first, then by name.
///
/// Upstream counterpart: `ReplicaSetsByCreationTimestamp`.
pub fn by_creation_timestamp(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    (a.metadata.creation_timestamp, &a.metadata.name).cmp(&(b.metadata.creation_timestamp, &b.metadata.name))
}

/// Largest first; of one size, the oldest first.
///
/// Upstream counterpart: `ReplicaSetsBySizeOlder`.
pub fn by_size_older(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    b.replicas().cmp(&a.replicas()).then_with(|| by_creation_timestamp(a, b))
}

/// Largest first; of one size, the newest first, and then by name backwards.
///
/// Upstream counterpart: `ReplicaSetsBySizeNewer`.
pub fn by_size_newer(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    b.replicas().cmp(&a.replicas()).then_with(|| by_creation_timestamp(b, a))
}
