use std::time::Duration;

use kcm_api::ApiError;

/// What an informer tells of itself. Every method does nothing unless implemented.
///
/// One implementation serves any number of informers: each call names the one that it comes from. Calls are
/// made on the reflector's task and must not block.
///
/// Upstream counterpart: the informer metrics of client-go (US-1.8), with what upstream counts nowhere: relists
/// and objects that cannot be decoded.
pub trait InformerMetrics: Send + Sync + 'static {
    /// The store changed: it has so many objects and is at this version.
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        let _ = (informer, objects, resource_version);
    }

    /// All objects were fetched: for the first time, or anew (`relist`).
    fn listed(&self, informer: &str, relist: bool) {
        let _ = (informer, relist);
    }

    /// A list or a watch failed.
    fn request_failed(&self, informer: &str, error: &ApiError) {
        let _ = (informer, error);
    }

    /// A watch was opened.
    fn watch_started(&self, informer: &str) {
        let _ = informer;
    }

    /// Whether to time what [`processed`](Self::processed) is told, which costs two looks at the clock.
    fn wants_times(&self) -> bool {
        false
    }

    /// One change, or a whole list, was put into the store and told to every handler, in this time.
    fn processed(&self, informer: &str, took: Duration) {
        let _ = (informer, took);
    }

    /// A watch that was opened has ended, after this time and so many events.
    fn watch_ended(&self, informer: &str, lasted: Duration, events: u64) {
        let _ = (informer, lasted, events);
    }

    /// An object could not be decoded.
    fn undecodable(&self, informer: &str) {
        let _ = informer;
    }
}

/// Metrics that go nowhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoInformerMetrics;

impl InformerMetrics for NoInformerMetrics {}
