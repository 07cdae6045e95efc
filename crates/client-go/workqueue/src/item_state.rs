//! State of one item, for debugging.

use std::time::Duration;

/// State of an item in a [`RateLimitingQueue`](crate::RateLimitingQueue).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemState {
    /// Place of the item in the queue.
    pub phase: ItemPhase,
    /// Time until the item is added to the queue. `None` if no delay is pending.
    pub delay: Option<Duration>,
    /// Number of [rate-limited](crate::RateLimitingQueue::add_rate_limited) additions since the item was forgotten.
    pub requeues: u32,
}

impl ItemState {
    /// Returns `true` if the item is not in the queue, is not delayed and has no failures.
    pub fn is_idle(&self) -> bool {
        self.phase == ItemPhase::Absent && self.delay.is_none() && self.requeues == 0
    }
}

impl ItemPhase {
    /// The place after the item is added.
    pub(crate) fn added(self) -> Self {
        match self {
            Self::Absent | Self::Queued => Self::Queued,
            Self::Processing | Self::ProcessingDirty => Self::ProcessingDirty,
        }
    }
}

/// Place of an item in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemPhase {
    /// Not in the queue.
    Absent,
    /// Waiting for a worker.
    Queued,
    /// Being processed.
    Processing,
    /// Being processed, and queued again when that is done.
    ProcessingDirty,
}
