//! Metrics of work queues: `workqueue_*` (US-1.8).

use std::{fmt, sync::Arc, time::Duration};

use kcm_metrics::{Counter, Family, Gauge, Histogram, Registry, Spec, Stability::Beta};
use kcm_workqueue::{MetricsProvider, QueueMetrics, Refresh};

/// Powers of ten from 10 ns, with the rounding errors of Go's `ExponentialBuckets(10e-9, 10, 10)`.
const BUCKETS: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];

/// Metrics of all work queues.
pub(super) struct Queues {
    depth: Family<Gauge, 1>,
    adds: Family<Counter, 1>,
    queue_duration: Family<Histogram, 1>,
    work_duration: Family<Histogram, 1>,
    unfinished: Family<Gauge, 1>,
    longest: Family<Gauge, 1>,
    retries: Family<Counter, 1>,
    registry: Registry,
}

impl Queues {
    pub(super) fn new(registry: &Registry) -> Self {
        let spec = |name, help| Spec::upstream(name, Beta, ["name"], help);
        Self {
            depth: registry.metric(spec("workqueue_depth", "Current number of items in the work queue.")),
            adds: registry.metric(spec(
                "workqueue_adds_total",
                "Items added to the work queue. Items that are queued already are not counted.",
            )),
            queue_duration: registry.metric(
                spec(
                    "workqueue_queue_duration_seconds",
                    "Time that an item waited in the work queue, in seconds.",
                )
                .buckets(BUCKETS),
            ),
            work_duration: registry.metric(
                spec("workqueue_work_duration_seconds", "Duration of processing an item, in seconds.")
                    .buckets(BUCKETS),
            ),
            unfinished: registry.metric(spec(
                "workqueue_unfinished_work_seconds",
                "Sum of the processing times so far of all items in progress, in seconds. It grows if a worker is stuck.",
            )),
            longest: registry.metric(spec(
                "workqueue_longest_running_processor_seconds",
                "Longest processing time so far of an item in progress, in seconds.",
            )),
            retries: registry.metric(spec(
                "workqueue_retries_total",
                "Items added to the work queue with a delay, after failures and for other reasons.",
            )),
            registry: registry.clone(),
        }
    }
}

impl MetricsProvider for Queues {
    fn queue(&self, name: &str) -> Option<Arc<dyn QueueMetrics>> {
        Some(Arc::new(Queue {
            depth: self.depth.with([name]),
            adds: self.adds.with([name]),
            queue_duration: self.queue_duration.with([name]),
            work_duration: self.work_duration.with([name]),
            unfinished: self.unfinished.with([name]),
            longest: self.longest.with([name]),
            retries: self.retries.with([name]),
        }))
    }

    fn refresh_with(&self, _name: &str, refresh: Refresh) {
        self.registry.on_scrape(refresh);
    }
}

/// Time series of one queue.
struct Queue {
    depth: Arc<Gauge>,
    adds: Arc<Counter>,
    queue_duration: Arc<Histogram>,
    work_duration: Arc<Histogram>,
    unfinished: Arc<Gauge>,
    longest: Arc<Gauge>,
    retries: Arc<Counter>,
}

impl QueueMetrics for Queue {
    fn depth(&self, items: usize) {
        self.depth.set(items as f64);
    }

    fn added(&self) {
        self.adds.inc();
    }

    fn queue_duration(&self, waited: Duration) {
        self.queue_duration.observe_seconds(waited);
    }

    fn work_duration(&self, worked: Duration) {
        self.work_duration.observe_seconds(worked);
    }

    fn unfinished_work(&self, total: Duration) {
        self.unfinished.set_seconds(total);
    }

    fn longest_running_processor(&self, longest: Duration) {
        self.longest.set_seconds(longest);
    }

    fn retried(&self) {
        self.retries.inc();
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}
