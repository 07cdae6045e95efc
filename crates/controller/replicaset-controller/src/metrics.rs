use kcm_controller_util::GroupResource;

/// Who counts. Each method may be called from any task, and must not block.
///
/// Upstream counterpart: `pkg/controller/replicaset/metrics`.
pub trait ReplicaSetMetrics: Send + Sync + 'static {
    /// A ready pod was chosen to go: its age in units of the age of the youngest ready pod.
    ///
    /// Upstream: `replicaset_controller_sorting_deletion_age_ratio`.
    fn sorting_deletion_age_ratio(&self, ratio: f64) {
        let _ = ratio;
    }

    /// A sync was put off because a cache had not seen this controller's own write yet.
    ///
    /// Upstream: `replicaset_controller_stale_sync_skips_total`.
    fn stale_sync_skip(&self, resource: GroupResource) {
        let _ = resource;
    }
}

/// Nobody counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReplicaSetMetrics;

impl ReplicaSetMetrics for NoReplicaSetMetrics {}
