use std::time::Duration;

use crate::error::ListWatchError;

/// Metrics of informers. The default of each method does nothing.
///
/// One implementation serves all informers; the first argument is the name of the informer. The methods are called on the
/// task of the reflector and must not block.
///
/// Upstream counterpart: client-go's informer metrics (US-1.8). Relists and undecodable objects have no upstream metric.
pub trait InformerMetrics: Send + Sync + 'static {
    /// The store was changed. It contains `objects` objects and is at `resource_version`.
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        let _ = (informer, objects, resource_version);
    }

    /// A list was completed. `relist` is `false` for the first list of the informer.
    fn listed(&self, informer: &str, relist: bool) {
        let _ = (informer, relist);
    }

    /// A list or watch failed.
    fn request_failed(&self, informer: &str, error: &ListWatchError) {
        let _ = (informer, error);
    }

    /// A watch was opened.
    fn watch_started(&self, informer: &str) {
        let _ = informer;
    }

    /// Returns `true` if the informer must measure durations for [`processed`](Self::processed). It then reads the clock
    /// twice per event.
    fn records_durations(&self) -> bool {
        false
    }

    /// An event or a list was written to the store and passed to the handlers.
    fn processed(&self, informer: &str, duration: Duration) {
        let _ = (informer, duration);
    }

    /// A watch ended `duration` after its request, with `events` events.
    fn watch_ended(&self, informer: &str, duration: Duration, events: u64) {
        let _ = (informer, duration, events);
    }

    /// An object could not be decoded.
    fn undecodable(&self, informer: &str) {
        let _ = informer;
    }
}

/// Metrics that are not recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoInformerMetrics;

impl InformerMetrics for NoInformerMetrics {}
