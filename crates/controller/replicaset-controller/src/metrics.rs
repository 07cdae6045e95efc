use kcm_expectations::GroupResource;

/// Metrics of the controller. Methods are called from any task and must not block.
///
/// Upstream counterpart: `pkg/controller/replicaset/metrics`.
pub trait ReplicaSetMetrics: Send + Sync + 'static {
    /// A ready pod was selected for deletion. `ratio` is its age divided by the age of the youngest ready pod.
    ///
    /// Upstream metric: `replicaset_controller_sorting_deletion_age_ratio`.
    fn sorting_deletion_age_ratio(&self, ratio: f64) {
        let _ = ratio;
    }

    /// A sync was skipped because the cache of `resource` does not contain the controller's own writes yet.
    ///
    /// Upstream metric: `replicaset_controller_stale_sync_skips_total`.
    fn stale_sync_skip(&self, resource: GroupResource) {
        let _ = resource;
    }
}

/// [`ReplicaSetMetrics`] that discard everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReplicaSetMetrics;

impl ReplicaSetMetrics for NoReplicaSetMetrics {}
