//! Active and terminating pods (US-3.6).

use std::sync::Arc;

use crate::PodView;

/// Returns the pods that are neither finished nor terminating.
///
/// Upstream counterpart: `FilterActivePods`.
pub fn active_pods<'a, P: PodView>(pods: impl IntoIterator<Item = &'a Arc<P>>) -> Vec<Arc<P>> {
    pods.into_iter().filter(|pod| pod.is_active()).cloned().collect()
}

/// Returns the number of terminating pods that are not finished.
///
/// Upstream counterpart: `CountTerminatingPods`.
pub fn count_terminating_pods<'a, P: PodView>(pods: impl IntoIterator<Item = &'a Arc<P>>) -> usize {
    pods.into_iter().filter(|pod| pod.is_terminating()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ago, pod};
    use kcm_api::{Phase, Pod};

    /// Pods of each phase, terminating and not.
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
}
