//! Who counts syncs.

use std::{fmt, time::Duration};

/// What came of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncResult {
    /// It did what there was to do.
    Success,
    /// It failed, and will be tried again.
    Error,
    /// It was put off: a cache does not show yet what this controller wrote itself.
    Stale,
    /// It failed, and will not be tried again before the next event.
    Dropped,
}

impl SyncResult {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Stale, Self::Dropped];

    /// Its name, as a label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Stale => "stale",
            Self::Dropped => "dropped",
        }
    }
}

/// Is told of each sync of one controller. Methods may be called from any task, and must not block.
///
/// Upstream has no counterpart: it knows how long a worker had a key, not what came of it.
pub trait SyncMetrics: Send + Sync + 'static {
    /// A sync has begun.
    fn started(&self) {}

    /// A sync has ended. Not told of one that was given up in the middle.
    fn ended(&self, took: Duration, result: SyncResult) {
        let _ = (took, result);
    }
}

/// Nobody counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSyncMetrics;

impl SyncMetrics for NoSyncMetrics {}

impl fmt::Debug for dyn SyncMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncMetrics")
    }
}
