//! What a controller has asked for and not seen yet.
//!
//! *Upstream counterpart:* the expectations of `pkg/controller/controller_utils.go`.
//!
//! A controller acts on a cache that lags behind its own writes. Having created five pods, it may look again
//! before the cache shows one of them, and would create five more. So before it writes, it notes how many
//! creations and deletions are on their way, per object that it acts for; the cache's event handlers count
//! them off; and until both counts are down to zero, it neither creates nor deletes. If an event never comes,
//! the note loses its force after [`EXPECTATIONS_TIMEOUT`].
//!
//! Two kinds:
//!
//! * [`ControllerExpectations`] counts.
//! * [`UidTrackingExpectations`] also knows *which* deletions it waits for. A deletion is seen up to three times
//!   (marked, marked again, gone), and one that somebody else asked for must not count.
//!
//! Counts may go below zero: a creation can be seen before the call that asked for it returns its failure.
//! Nothing here corrects that; the next sync overwrites the note.
//!
//! Keys are whatever names the object acted for; a clock is passed in. Nothing here waits or wakes anybody.
//!
//! *What must not live here:* what to do when expectations are not met; caches; knowledge of any kind of object.

mod counting;
mod uid_tracking;

pub use counting::{ControllerExpectations, EXPECTATIONS_TIMEOUT};
pub use uid_tracking::UidTrackingExpectations;

use std::{fmt::Display, hash::Hash};

/// What names the object that a controller acts for.
///
/// Implemented for every type that qualifies.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Display + Send + Sync + 'static> Key for K {}
