use std::{fmt, sync::Arc, time::Duration};

/// Creates the metrics of queues.
///
/// Upstream counterpart: `workqueue.MetricsProvider`.
pub trait MetricsProvider: Send + Sync + 'static {
    /// Returns the metrics of the queue `name`. With `None`, the queue does not read the clock.
    fn queue(&self, name: &str) -> Option<Arc<dyn QueueMetrics>>;

    /// Registers the function that updates the time-dependent metrics of the queue `name`. The provider calls it before
    /// each scrape, until it returns `false`.
    ///
    /// Upstream counterpart: `updateUnfinishedWorkLoop`, which updates them every 500 ms.
    fn refresh_with(&self, name: &str, refresh: Refresh) {
        let _ = (name, refresh);
    }
}

/// Updates the time-dependent metrics of a queue. Returns `false` once the queue is dropped.
pub type Refresh = Box<dyn Fn() -> bool + Send + Sync>;

/// Metrics of a queue (US-1.8). The default of each method does nothing.
///
/// Methods may be called while the queue is locked, so that values are reported in order. They must not block and must not
/// access the queue.
pub trait QueueMetrics: Send + Sync + 'static {
    /// `workqueue_depth`: the number of items to be processed. Includes items that were added again while a worker
    /// processes them.
    fn depth(&self, _items: usize) {}

    /// `workqueue_adds_total`: an item was added that was not yet to be processed.
    fn added(&self) {}

    /// `workqueue_queue_duration_seconds`: the time from the add of an item until a worker got it.
    fn queue_duration(&self, _duration: Duration) {}

    /// `workqueue_work_duration_seconds`: the time in which a worker processed an item.
    fn work_duration(&self, _duration: Duration) {}

    /// `workqueue_unfinished_work_seconds`: the total time spent so far on the items that are being processed. Updated by
    /// [`refresh_metrics`](crate::Queue::refresh_metrics).
    fn unfinished_work(&self, _total: Duration) {}

    /// `workqueue_longest_running_processor_seconds`: the longest time spent so far on an item that is being processed.
    /// Updated by [`refresh_metrics`](crate::Queue::refresh_metrics).
    fn longest_running_processor(&self, _longest: Duration) {}

    /// `workqueue_retries_total`: an item was added with a delay. As upstream, this includes delays of zero and delays
    /// that do not follow a failure.
    fn retried(&self) {}
}

/// Provider without metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoQueueMetrics;

impl MetricsProvider for NoQueueMetrics {
    fn queue(&self, _name: &str) -> Option<Arc<dyn QueueMetrics>> {
        None
    }
}

impl fmt::Debug for dyn QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueMetrics")
    }
}

impl fmt::Debug for dyn MetricsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsProvider")
    }
}
