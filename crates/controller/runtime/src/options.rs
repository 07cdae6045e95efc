//! Options of a controller.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_meta::ObjectKey;
use kcm_workqueue::{MetricsProvider, NoQueueMetrics, RateLimitingQueue};

use crate::{NoSyncMetrics, OwnWrites, SyncMetrics, sync_log::SyncLog};

/// Queue of a controller. Clones share the same queue.
pub type KeyQueue = RateLimitingQueue<ObjectKey>;

/// Returns `true` while this process leads.
pub(crate) type LeaderGate = Box<dyn Fn() -> bool + Send + Sync>;

/// Options that a [`ControllerBuilder`](crate::ControllerBuilder) sets.
pub(crate) struct Options {
    pub(crate) name: &'static str,
    pub(crate) queue_name: &'static str,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue_metrics: Arc<dyn MetricsProvider>,
    pub(crate) sync_metrics: Arc<dyn SyncMetrics>,
    pub(crate) workers: usize,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) leader_gate: Option<LeaderGate>,
    pub(crate) own_writes: Option<Arc<OwnWrites>>,
    pub(crate) sync_log: Option<SyncLog>,
}

impl Options {
    pub(crate) fn new(name: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self {
            name,
            queue_name: name,
            clock,
            queue_metrics: Arc::new(NoQueueMetrics),
            sync_metrics: Arc::new(NoSyncMetrics),
            workers: 1,
            drain_timeout: None,
            leader_gate: None,
            own_writes: None,
            sync_log: None,
        }
    }
}
