//! Controller-specific part of the control loop.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use kcm_api::ObjectKey;
use tracing::Span;

/// Syncs the objects of one controller. A [`Controller`](crate::Controller) calls it for each key of its queue.
///
/// Upstream counterpart: the `syncHandler` of each controller.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// Error of a sync.
    type Error: fmt::Display + Send + 'static;

    /// Message that is logged at `-v=4` before a sync.
    const STARTED: Option<&'static str> = None;
    /// Message that is logged at `-v=4` after a sync.
    const FINISHED: &'static str = "Finished syncing";
    /// Message of a failed sync.
    const FAILED: &'static str = "Sync failed";
    /// Number of consecutive failures that are logged at `-v=2`. Later failures are logged as errors.
    const QUIET_RETRIES: u32 = 0;

    /// Syncs the object at `key` and returns the time of the next sync if no event comes before it.
    ///
    /// # Errors
    ///
    /// If the sync failed. [`classify`](Self::classify) decides whether it is retried.
    ///
    /// # Cancel safety
    ///
    /// An implementation must permit that the future is dropped: the next sync starts from the caches.
    async fn sync(&self, key: &ObjectKey) -> Result<Requeue, Self::Error>;

    /// Returns the treatment of `error`.
    fn classify(error: &Self::Error) -> ErrorClass;

    /// Returns the span of a sync. Its fields are part of each line that the sync logs.
    ///
    /// The key is a field under upstream's name for the kind, such as `deployment`. The level is `ERROR`, so that errors
    /// are logged with the key at every verbosity.
    fn span(&self, key: &ObjectKey) -> Span;
}

/// Time of the next sync if no event comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Not before the next event.
    Never,
    /// After this time.
    After(Duration),
    /// As soon as the rate limiter permits. The back-off of the key does not grow.
    RateLimited,
}

/// Treatment of a failed sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The sync is retried with back-off and logged as failed.
    Failed,
    /// A cache does not contain the controller's own writes yet. The sync is retried with back-off and logged at `-v=2`.
    StaleCache,
    /// The object was deleted while it was synced. The sync is retried with back-off and logged at `-v=2`.
    ObjectDeleted,
    /// A retry cannot succeed. The key is dropped until the next event.
    Terminal,
}
