//! Syncs of any controller, and `replicaset_controller_*` (US-1.8).

use std::{sync::Arc, time::Duration};

use kcm_controller_util::{GroupResource, SyncMetrics, SyncResult};
use kcm_replicaset_controller::ReplicaSetMetrics;

use crate::{
    Counter, Family, Gauge, Histogram, Registry, Spec,
    Stability::{Alpha, Beta},
};

const SYNC: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Makes the metrics of each controller's syncs.
#[derive(Debug)]
pub(crate) struct Syncs {
    duration: Family<Histogram, 1>,
    results: Family<Counter, 2>,
    in_flight: Family<Gauge, 1>,
    running: Family<Gauge, 2>,
}

impl Syncs {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            duration: registry.metric(
                Spec::own(
                    "kcm_sync_duration_seconds",
                    ["controller"],
                    "How long a sync took, by controller, in seconds.",
                )
                .buckets(SYNC),
            ),
            results: registry.metric(Spec::own(
                "kcm_syncs_total",
                ["controller", "result"],
                "Syncs that have ended, by controller and result: success, error (comes again), stale (put off until \
                 the caches show the last sync's writes), dropped (failed, and waits for the next event).",
            )),
            in_flight: registry.metric(Spec::own(
                "kcm_syncs_in_flight",
                ["controller"],
                "Syncs under way now, by controller.",
            )),
            running: registry.metric(Spec::upstream(
                "running_managed_controllers",
                Beta,
                ["manager", "name"],
                "1 while a controller runs here, 0 once it has stopped.",
            )),
        }
    }

    pub(crate) fn of(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        Arc::new(Controller {
            duration: self.duration.with([controller]),
            results: SyncResult::ALL.map(|result| self.results.with([controller, result.as_str()])),
            in_flight: self.in_flight.with([controller]),
        })
    }

    pub(crate) fn running(&self, manager: &str, controller: &str, running: bool) {
        self.running.with([manager, controller]).set(if running { 1.0 } else { 0.0 });
    }
}

/// The series of one controller.
struct Controller {
    duration: Arc<Histogram>,
    /// As [`SyncResult::ALL`].
    results: [Arc<Counter>; 4],
    in_flight: Arc<Gauge>,
}

impl SyncMetrics for Controller {
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

/// What the ReplicaSet controller tells of itself.
#[derive(Debug)]
pub(crate) struct ReplicaSets {
    age_ratio: Arc<Histogram>,
    stale: Family<Counter, 2>,
}

impl ReplicaSets {
    pub(crate) fn new(registry: &Registry) -> Self {
        let age_ratio = Spec::upstream(
            "replicaset_controller_sorting_deletion_age_ratio",
            Alpha,
            [],
            "The age of a ready pod that was chosen to go, in units of the age of the youngest ready one. Below 2 while \
             young pods go first.",
        );
        Self {
            age_ratio: registry.metric(age_ratio.buckets(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0])).only(),
            stale: registry.metric(Spec::upstream(
                "replicaset_controller_stale_sync_skips_total",
                Alpha,
                ["group", "resource"],
                "Syncs put off because a cache did not show this controller's own last write yet, by what is in that \
                 cache.",
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
