//! State that a write may be based on.

use jiff::{SignedDuration, Timestamp};

/// Time for which changes by other clients may be unknown to a controller. In simulated time, watches have no delay, but a
/// running sync uses the state from its start.
const OBSERVATION_DELAY: SignedDuration = SignedDuration::from_millis(100);

/// Time of a write, and age of the state that it may be based on.
///
/// A write is compared with every state of the cluster between the two. It is a violation only if all of them forbid it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Basis {
    /// Time of the write.
    pub now: Timestamp,
    /// Oldest state of the cluster that the writer may have acted on. Not after `now`.
    pub since: Timestamp,
    /// Time for which losses by other clients may be unknown to the writer, if `since` is later.
    pub delay: SignedDuration,
    /// `true` if the writer no longer waits for the write, which may have been decided before later writes of the manager.
    pub is_abandoned: bool,
}

impl Basis {
    /// Basis of a write that is based on the current state.
    pub fn current(now: Timestamp) -> Self {
        Self { now, since: now, delay: OBSERVATION_DELAY, is_abandoned: false }
    }

    /// `true` if the writer may have acted on an old state.
    pub(crate) fn is_old(self) -> bool {
        self.since < self.now
    }
}
