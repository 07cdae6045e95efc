//! `workqueue_*` (US-1.8).

use std::{fmt, sync::Arc, time::Duration};

use kcm_workqueue::{MetricsProvider, QueueMetrics, Refresh};

use crate::{Counter, Family, Gauge, Histogram, Registry, Spec, Stability::Beta, metrics::Refreshers};

/// Ten from 10 ns on, each ten times the one before; as Go's multiplication has them, to the last digit.
const BUCKETS: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];

/// Makes each queue's metrics.
pub(crate) struct Queues {
    depth: Family<Gauge, 1>,
    adds: Family<Counter, 1>,
    queue_duration: Family<Histogram, 1>,
    work_duration: Family<Histogram, 1>,
    unfinished: Family<Gauge, 1>,
    longest: Family<Gauge, 1>,
    retries: Family<Counter, 1>,
    refreshers: Refreshers,
}

impl Queues {
    pub(crate) fn new(registry: &Registry, refreshers: Refreshers) -> Self {
        let spec = |name, help| Spec::upstream(name, Beta, ["name"], help);
        Self {
            depth: registry.metric(spec("workqueue_depth", "How many items wait in the work queue now.")),
            adds: registry.metric(spec(
                "workqueue_adds_total",
                "Items added to the work queue; one that waits already does not count again.",
            )),
            queue_duration: registry.metric(
                spec(
                    "workqueue_queue_duration_seconds",
                    "How long an item waited in the work queue until a worker took it, in seconds.",
                )
                .buckets(BUCKETS),
            ),
            work_duration: registry.metric(
                spec("workqueue_work_duration_seconds", "How long a worker had an item, in seconds.")
                    .buckets(BUCKETS),
            ),
            unfinished: registry.metric(spec(
                "workqueue_unfinished_work_seconds",
                "The time spent so far on items that workers have now, added up, in seconds. What only grows is stuck.",
            )),
            longest: registry.metric(spec(
                "workqueue_longest_running_processor_seconds",
                "How long a worker has had its item, at most, in seconds.",
            )),
            retries: registry.metric(spec(
                "workqueue_retries_total",
                "Items added to the work queue to come later, after failures and for other reasons.",
            )),
            refreshers,
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
        self.refreshers.add(refresh);
    }
}

/// The series of one queue.
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
