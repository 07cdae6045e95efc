//! Diagnosis of rollouts: the state of a Deployment's rollout, the causes that hold it, and the controllers' next writes.
//!
//! *Upstream counterpart:* none. `kubectl rollout status` reports the state without causes.
//!
//! [`diagnose`] is pure. Its input is a [`Snapshot`] of objects as the API server returned them. The next writes come from
//! the plan of `kcm-deployment-controller`.
//!
//! | Part | File |
//! |---|---|
//! | objects, and those that could not be read | `snapshot.rs`, `known.rs`, `index.rs`, `events.rs` |
//! | the Deployment with its ReplicaSets and pods, next writes | `rollout.rs` |
//! | state, causes in the Deployment | `diagnose.rs` |
//! | StatefulSets and DaemonSets | `workload.rs` |
//! | causes in pods | `pods/` |
//! | refused creations and deletions | `refusal.rs` |
//! | deletions | `deletion.rs` |
//! | writes that the controllers do not make | `due.rs` |
//! | other controllers, events without a cause | `others.rs` |
//! | causes from the caches of a manager | `cached.rs` |
//! | queue state from the debug endpoint of a manager | `controller.rs` |
//! | commands | `commands.rs`, `undo.rs` |
//! | state in one sentence | `summary.rs` |
//! | result and its JSON form | `diagnosis.rs`, `finding.rs`, `cause.rs` |
//! | text | `render.rs` |
//! | text of others on terminals | `printable.rs` |
//! | last change of the pod template | `change.rs` |
//!
//! *Not in this crate:* access to a cluster.

#![warn(missing_debug_implementations)]

mod cached;
mod cause;
mod change;
mod commands;
mod controller;
mod deletion;
mod diagnose;
mod diagnosis;
mod due;
mod duration;
mod events;
mod finding;
mod index;
pub mod json;
mod known;
mod others;
mod pods;
mod printable;
mod refusal;
pub mod render;
mod rollout;
mod snapshot;
mod summary;
mod undo;
mod workload;

pub use cached::cached_cause;
pub use cause::Cause;
pub use commands::grants;
pub use controller::ControllerState;
pub use diagnose::diagnose;
pub use diagnosis::{API_VERSION, Bounds, Command, Diagnosis, Remedy, Replicas, State, TemplateChange};
pub use events::last_time;
pub use finding::{Effect, Finding};
pub use index::Index;
pub use known::{Known, Unreadable};
pub use printable::{printable, printable_json};
pub use refusal::refused_write;
pub use rollout::DiagnoseError;
pub use snapshot::Snapshot;
pub use workload::{Workload, diagnose_workload};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
