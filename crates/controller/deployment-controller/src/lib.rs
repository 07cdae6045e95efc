//! The Deployment controller: rolls out pod templates with ReplicaSets, and keeps old ReplicaSets for rollbacks.
//!
//! *Upstream counterpart:* `pkg/controller/deployment`. *Behaviour:* `docs/behaviour/deployment.md`.
//!
//! # A sync
//!
//! | Step | File |
//! |---|---|
//! | event handlers enqueue keys | `handlers.rs` |
//! | the control loop calls a sync for each key, and requeues it | `controller.rs` |
//! | the sync claims ReplicaSets and reads the caches into a [`View`] | `sync.rs`, `lookup.rs`, `view.rs` |
//! | [`plan()`] decides on the writes, with a [`Reason`] for each | `plan.rs`, and a file per decision in `plan/` |
//! | the status is computed from the ReplicaSets | `status.rs` |
//! | the sync performs the writes one after the other | `sync.rs`, `execute.rs` |
//!
//! # Plans
//!
//! [`plan()`] is pure: it performs no I/O, does not log, and receives the time. It reads as upstream's functions do, with
//! the writes in between, but a write only adds an [`Action`]. If the result of the action is known, planning continues
//! with it. Otherwise it continues as if the write had succeeded, or ends if it requires the returned object. The
//! sync performs the new actions and plans again with their results. The second plan begins with the same actions
//! and continues beyond them. Planning takes microseconds, a write takes a round trip.
//!
//! Error handling is therefore part of the plan. A plan ends at these writes until it has their result:
//!
//! | Write | The result is required because |
//! |---|---|
//! | PUT annotations or `minReadySeconds` of the new ReplicaSet | the ReplicaSet may be scaled next |
//! | POST the new ReplicaSet | it may fail, or its name may exist |
//! | PUT status before a rollback | the update of the spec needs the new resource version |
//! | PUT an old ReplicaSet without its unhealthy pods | the ReplicaSet may be scaled again |
//!
//! After other writes planning continues, and only a failure requires a new plan. The effect of a failure depends on the
//! write: it ends the sync; it ends a step of a rolling update, and the sync is retried; or, for a deletion with
//! `NotFound`, it is success.
//!
//! # Status updates
//!
//! The status is updated once in a sync, at its end: that a Deployment is paused or resumed, its revision, and the
//! creation or discovery of its new ReplicaSet are part of that update. Before a rollback they are written separately. If
//! [`View::coalesce_status_writes`] is `false`, each is written separately, as upstream.
//!
//! # Objects after a write
//!
//! If the API server returns an object with another resource version, the sync continues with that object. Upstream
//! continues with the object that it read, and its next write of that object fails with 409 (US-4.6, US-4.8).

#![warn(missing_debug_implementations)]

mod controller;
mod error;
mod execute;
mod handlers;
mod inspect;
mod lookup;
mod plan;
mod status;
mod sync;
mod view;

pub use controller::{DeploymentController, DeploymentControllerConfig, DeploymentControllerOptions};
pub use error::SyncError;
pub use inspect::Inspection;
pub use plan::{
    Action, ActionResult, BlockedOn, Event, Notice, Plan, PlanEnd, PlannedAction, ProgressCheck, Reason,
    SyncOutcome, plan, plan_assuming_success,
};
pub use status::StatusChange;
pub use view::View;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
