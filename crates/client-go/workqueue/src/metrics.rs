//! What a queue tells about itself.

use std::{fmt, sync::Arc, time::Duration};

/// Makes the metrics of each queue.
///
/// Upstream counterpart: `workqueue.MetricsProvider`.
pub trait MetricsProvider: Send + Sync + 'static {
    /// The metrics of the queue called `name`; `None` when nobody wants them, which spares the queue from
    /// reading the clock.
    fn queue(&self, name: &str) -> Option<Arc<dyn QueueMetrics>>;

    /// How the queue's metrics are brought up to date that change with time alone: call `refresh` before they are
    /// read. It answers false once the queue is gone, and need not be called again.
    ///
    /// Upstream counterpart: the loop that does so every 500 ms.
    fn refresh_with(&self, name: &str, refresh: Refresh) {
        let _ = (name, refresh);
    }
}

/// Brings a queue's metrics up to date; false once the queue is gone.
pub type Refresh = Box<dyn Fn() -> bool + Send + Sync>;

/// One queue's metrics. Each method does nothing unless implemented.
///
/// The names are those of US-1.8. A method may be called with the queue locked, so that gauges change in the
/// order of what they measure: it must be quick and must not call the queue.
pub trait QueueMetrics: Send + Sync + 'static {
    /// `workqueue_depth`: how many items wait, those that wait for their own processing to end included.
    fn depth(&self, _items: usize) {}

    /// `workqueue_adds_total`: an item was added that did not wait already.
    fn added(&self) {}

    /// `workqueue_queue_duration_seconds`: how long an item waited until a worker took it.
    fn queue_duration(&self, _waited: Duration) {}

    /// `workqueue_work_duration_seconds`: how long a worker had an item.
    fn work_duration(&self, _worked: Duration) {}

    /// `workqueue_unfinished_work_seconds`: the time spent so far on items that workers have now, added up.
    /// Told by [`refresh_metrics`](crate::Queue::refresh_metrics).
    fn unfinished_work(&self, _total: Duration) {}

    /// `workqueue_longest_running_processor_seconds`: how long a worker has had its item, at most.
    /// Told by [`refresh_metrics`](crate::Queue::refresh_metrics).
    fn longest_running_processor(&self, _longest: Duration) {}

    /// `workqueue_retries_total`: an item was added with a delay, be it zero, and be it for another reason
    /// than a failure.
    fn retried(&self) {}
}

/// No metrics.
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
