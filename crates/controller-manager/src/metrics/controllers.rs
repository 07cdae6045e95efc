//! Metrics of syncs, and `replicaset_controller_*` (US-1.8).

use std::{sync::Arc, time::Duration};

use kcm_metrics::{
    Counter, Family, Gauge, Histogram, Registry, Spec,
    Stability::{Alpha, Beta},
};
use kcm_replicaset_controller::ReplicaSetMetrics;
use kcm_runtime::{GroupResource, SyncMetrics, SyncResult};

const SYNC: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Metrics of the syncs of all controllers.
#[derive(Debug)]
pub(super) struct Syncs {
    duration: Family<Histogram, 1>,
    results: Family<Counter, 2>,
    in_flight: Family<Gauge, 1>,
    running: Family<Gauge, 2>,
}

impl Syncs {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            duration: registry.metric(
                Spec::own(
                    "kcm_sync_duration_seconds",
                    ["controller"],
                    "Duration of a sync by controller, in seconds.",
                )
                .buckets(SYNC),
            ),
            results: registry.metric(Spec::own(
                "kcm_syncs_total",
                ["controller", "result"],
                "Finished syncs by controller and result: success, error (retried), stale (delayed until the caches \
                 contain the previous sync's writes), dropped (failed and not retried).",
            )),
            in_flight: registry.metric(Spec::own(
                "kcm_syncs_in_flight",
                ["controller"],
                "Syncs in progress by controller.",
            )),
            running: registry.metric(Spec::upstream(
                "running_managed_controllers",
                Beta,
                ["manager", "name"],
                "1 while the controller runs, 0 after it stopped.",
            )),
        }
    }

    pub(super) fn for_controller(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        Arc::new(ControllerSyncs {
            duration: self.duration.with([controller]),
            results: SyncResult::ALL.map(|result| self.results.with([controller, result.as_str()])),
            in_flight: self.in_flight.with([controller]),
        })
    }

    pub(super) fn running(&self, manager: &str, controller: &str, running: bool) {
        self.running.with([manager, controller]).set(if running { 1.0 } else { 0.0 });
    }
}

/// Time series of one controller.
struct ControllerSyncs {
    duration: Arc<Histogram>,
    /// In the order of [`SyncResult::ALL`].
    results: [Arc<Counter>; 4],
    in_flight: Arc<Gauge>,
}

impl SyncMetrics for ControllerSyncs {
    fn started(&self) {
        self.in_flight.add(1.0);
    }

    fn ended(&self, took: Duration, result: SyncResult) {
        self.in_flight.add(-1.0);
        self.duration.observe_seconds(took);
        for (counted, series) in SyncResult::ALL.iter().zip(&self.results) {
            if *counted == result {
                series.inc();
            }
        }
    }
}

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
