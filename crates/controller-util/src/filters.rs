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

#[cfg(test)]
mod tests {
    use kcm_api::Phase;
    use serde_json::json;

    use super::*;
    use crate::testing::{ago, pod};

    /// Each phase, going and not.
    fn pods() -> Vec<Arc<Pod>> {
        let phases = [Phase::Pending, Phase::Running, Phase::Unknown, Phase::Succeeded, Phase::Failed];
        let each = phases.into_iter().flat_map(|phase| {
            [None, ago(1)].map(|deleted| Arc::new(Pod { phase, deleted, ..pod(&format!("{phase:?}")) }))
        });
        each.collect()
    }

    /// Upstream: TestActivePodFiltering.
    #[test]
    fn test_active_pod_filtering() {
        let names: Vec<_> = active_pods(&pods()).iter().map(|pod| pod.key.name.to_string()).collect();
        assert_eq!(names, ["Pending", "Running", "Unknown"]);
    }

    /// Upstream: TestCountTerminatingPods.
    #[test]
    fn test_count_terminating_pods() {
        assert_eq!(count_terminating_pods(&pods()), 3);
    }

    fn replica_set(name: &str, replicas: i32, created: &str) -> Arc<ReplicaSet> {
        let object = json!({
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"replicas": replicas},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn order(compare: fn(&ReplicaSet, &ReplicaSet) -> Ordering) -> Vec<String> {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let mut all = [
            replica_set("c", 1, early),
            replica_set("b", 1, early),
            replica_set("a", 1, late),
            replica_set("large", 9, late),
        ];
        all.sort_by(|a, b| compare(a, b));
        all.iter().map(|replica_set| replica_set.metadata.name.to_string()).collect()
    }

    #[test]
    fn replica_sets_sort_by_age_and_by_size_with_age_either_way() {
        assert_eq!(order(by_creation_timestamp), ["b", "c", "a", "large"]);
        assert_eq!(order(by_size_older), ["large", "b", "c", "a"]);
        assert_eq!(order(by_size_newer), ["large", "a", "c", "b"]);
    }

    /// Upstream: TestActiveReplicaSetsFiltering.
    #[test]
    fn test_active_replica_sets_filtering() {
        let unset: ReplicaSet = serde_json::from_value(json!({})).unwrap();
        let all =
            [replica_set("none", 0, "2026-01-01T00:00:00Z"), replica_set("some", 2, "2026-01-01T00:00:00Z")];
        let active = active_replica_sets(&all);
        assert_eq!(active.len(), 1);
        assert_eq!(&*active[0].metadata.name, "some");
        // The server fills in one where no size is given.
        assert!(is_active_replica_set(&unset));
    }
}
