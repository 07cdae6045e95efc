//! Diagnosis of rollouts: the state of a Deployment's rollout, the causes that hold it, and the controller's next writes.
//!
//! *Upstream counterpart:* none. `kubectl rollout status` reports the state without causes.
//!
//! [`diagnose`] is pure. Its input is a [`Snapshot`] of objects as the API server returned them.
//!
//! | Part | File |
//! |---|---|
//! | objects | `snapshot.rs` |
//! | result and its JSON form | `diagnosis.rs`, `cause.rs` |
//!
//! *Not in this crate:* access to a cluster.

#![warn(missing_debug_implementations)]

mod cause;
mod diagnosis;
mod json;
mod snapshot;

pub use cause::Cause;
pub use diagnosis::{API_VERSION, Diagnosis, State, diagnose};
pub use snapshot::{Snapshot, Unreadable};
