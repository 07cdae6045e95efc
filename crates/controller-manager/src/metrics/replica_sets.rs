//! Metrics of the ReplicaSet controller: `replicaset_controller_*` (US-1.8).

use std::sync::Arc;

use kcm_metrics::{Counter, Family, Histogram, Registry, Spec, Stability::Alpha};
use kcm_replicaset_controller::ReplicaSetMetrics;
use kcm_runtime::GroupResource;

/// Metrics of the ReplicaSet controller.
#[derive(Debug)]
pub(super) struct ReplicaSets {
    age_ratio: Arc<Histogram>,
    stale: Family<Counter, 2>,
}

impl ReplicaSets {
    pub(super) fn new(registry: &Registry) -> Self {
        let age_ratio = Spec::upstream(
            "replicaset_controller_sorting_deletion_age_ratio",
            Alpha,
            [],
            "Ratio of the age of a deleted ready pod to the age of the youngest ready pod. Less than 2 if the rank by age \
             decides.",
        );
        Self {
            age_ratio: registry.metric(age_ratio.buckets(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0])).only(),
            stale: registry.metric(Spec::upstream(
                "replicaset_controller_stale_sync_skips_total",
                Alpha,
                ["group", "resource"],
                "Syncs skipped because a cache does not contain the controller's last write, by resource of the cache.",
            )),
        }
    }
}

impl ReplicaSetMetrics for ReplicaSets {
    fn sorting_deletion_age_ratio(&self, ratio: f64) {
        self.age_ratio.observe(ratio);
    }

    fn stale_sync_skip(&self, resource: GroupResource) {
        self.stale.with([resource.group, resource.resource]).inc();
    }
}
