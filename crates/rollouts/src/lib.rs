//! Diagnosis of rollouts: the state of a Deployment's rollout, the causes that hold it, and the controllers' next writes.
//!
//! *Upstream counterpart:* none. `kubectl rollout status` reports the state without causes.
//!
//! [`diagnose`] is pure. Its input is a [`Snapshot`] of objects as the API server returned them. The next writes come from
//! the plan of `kcm-deployment-controller`.
//!
//! | Part | File |
//! |---|---|
//! | objects | `snapshot.rs` |
//! | state, causes of the Deployment and its ReplicaSets | `diagnose.rs` |
//! | causes in pods | `pods.rs` |
//! | refused creations | `refusal.rs` |
//! | other controllers | `others.rs` |
//! | causes from the caches of a manager | `cached.rs` |
//! | queue state from the debug endpoint of a manager | `controller.rs` |
//! | commands | `commands.rs` |
//! | state in one sentence | `summary.rs` |
//! | result and its JSON form | `diagnosis.rs`, `finding.rs`, `cause.rs` |
//! | text | `render.rs` |
//!
//! *Not in this crate:* access to a cluster.

#![warn(missing_debug_implementations)]

mod cached;
mod cause;
mod commands;
mod controller;
mod diagnose;
mod diagnosis;
mod duration;
mod finding;
pub mod json;
mod others;
mod pods;
mod refusal;
pub mod render;
mod snapshot;
mod summary;

pub use cached::cached_cause;
pub use cause::Cause;
pub use controller::ControllerState;
pub use diagnose::{DiagnoseError, diagnose};
pub use diagnosis::{API_VERSION, Bounds, Command, Diagnosis, Replicas, State};
pub use finding::{Effect, Finding};
pub use snapshot::{Snapshot, Unreadable};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
