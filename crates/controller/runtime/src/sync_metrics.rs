//! Hooks for metrics of syncs.

use std::{fmt, time::Duration};

use crate::ControllerState;

/// Result of a sync, as a label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncResult {
    /// The sync succeeded.
    Success,
    /// The sync failed and is retried.
    Error,
    /// The sync was skipped because a cache does not contain the controller's own writes yet. It is retried.
    Stale,
    /// The sync failed and is not retried before the next event.
    Dropped,
}

impl SyncResult {
    /// All results.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Stale, Self::Dropped];

    /// Label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Stale => "stale",
            Self::Dropped => "dropped",
        }
    }
}

/// Metrics of the syncs of one controller. Methods are called from any task and must not block.
///
/// Upstream has no counterpart: its work queue measures how long a worker processes a key, without the result.
pub trait SyncMetrics: Send + Sync + 'static {
    /// The controller was built. `state` can be read at any time.
    fn built(&self, state: ControllerState) {
        let _ = state;
    }

    /// A sync has started.
    fn started(&self) {}

    /// A sync has ended. Not called for a sync that was aborted.
    fn ended(&self, duration: Duration, result: SyncResult) {
        let _ = (duration, result);
    }
}

/// [`SyncMetrics`] that discard everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSyncMetrics;

impl SyncMetrics for NoSyncMetrics {}

impl fmt::Debug for dyn SyncMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncMetrics")
    }
}
