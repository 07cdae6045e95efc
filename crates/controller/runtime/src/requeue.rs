//! Results of a reconciliation.

use std::time::Duration;

/// Time of the next reconciliation of a key if no event comes before it.
///
/// Upstream counterpart: `reconcile.Result` of controller-runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Not before the next event.
    Done,
    /// After this time.
    After(Duration),
    /// As soon as the rate limiter permits. The back-off of the key does not grow.
    RateLimited,
}

/// Treatment of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The key is retried with back-off, and the error is logged.
    Failed,
    /// The API server was not available, or the request conflicted, mostly because the object has changed since the cache
    /// received it. That says nothing about the object. The key is retried with a back-off that does not grow while the key
    /// waits, and the error is logged. See
    /// [`add_rate_limited_once`](kcm_workqueue::RateLimitingQueue::add_rate_limited_once).
    Temporary,
    /// A cache does not contain the controller's own writes yet. The key is retried with back-off, and the error is logged
    /// at `-v=2`.
    StaleCache,
    /// The object was deleted meanwhile. The key is retried with back-off, and the error is logged at `-v=2`.
    ObjectDeleted,
    /// A retry cannot succeed. The key is dropped until the next event.
    Terminal,
}
