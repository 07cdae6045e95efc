//! Metrics of syncs.

use std::{sync::Arc, time::Duration};

use kcm_metrics::{Counter, Family, Gauge, Histogram, Registry, Spec, Stability::Beta};
use kcm_runtime::{SyncMetrics, SyncResult};

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
