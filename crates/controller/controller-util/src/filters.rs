//! Which objects count (US-3.6). The orders that ReplicaSets are put in are in `kcm-deployment-util`, which alone
//! needs them and may not depend on anything asynchronous.

use std::sync::Arc;

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
            [None, ago(1)].map(|deletion_timestamp| {
                Arc::new(Pod { phase, deletion_timestamp, ..pod(&format!("{phase:?}")) })
            })
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
