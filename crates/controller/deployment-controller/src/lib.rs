//! The Deployment controller: rolls pods from one template to the next, and keeps the history to roll back.
//!
//! *Upstream counterpart:* `pkg/controller/deployment`.
//!
//! # How one sync goes
//!
//! | step | file | pure |
//! |---|---|---|
//! | events become keys | `handlers.rs` | |
//! | a key becomes a sync, its outcome a retry | `controller.rs` | |
//! | ReplicaSets are claimed, and what is known of them becomes a [`View`] | `syncer.rs` | |
//! | what is written, in which order and why | `plan.rs` and below | yes |
//! | the writes, one after the other | `execute.rs` | |
//!
//! [`plan()`] holds all of upstream's decisions, one file each:
//!
//! | file | decides |
//! |---|---|
//! | `sync.rs` | which of the decisions below a sync comes to; pausing; what counts as scaling |
//! | `new_replica_set.rs` | which ReplicaSet is new; its annotations, its name, its creation |
//! | `scale.rs` | sizes when the Deployment's size changes |
//! | `rolling.rs` | the next step of a RollingUpdate |
//! | `recreate.rs` | the next step of a Recreate |
//! | `rollback.rs` | the rollback that an annotation asks for |
//! | `progress.rs` | whether the rollout moves, is complete or stuck |
//! | `status.rs` | counts and conditions |
//! | `cleanup.rs` | which old ReplicaSets go |
//!
//! # Deciding apart from doing
//!
//! Decisions read as upstream's functions do, top to bottom, with their writes in between; yet they write nothing.
//! A write is an entry in the plan. If its answer is known from before, the decision goes on with it; if not, it
//! goes on as if the write had succeeded, or, where it needs the object that the server answers with, it ends
//! there. The executor carries out what is new, and asks for the plan again with one answer more: the same
//! decisions run once more, come to the same entries, and go further. A plan is cheap and a write is not.
//!
//! So every reaction to an error is in the pure code as well. These are the points where a plan ends for an answer:
//!
//! | after | because |
//! |---|---|
//! | PUT status: paused, resumed | later writes of the Deployment need its new resource version |
//! | PUT of the new ReplicaSet's annotations, revision or minReadySeconds | what follows scales or counts it as the server has it |
//! | PUT status: revision, or a new ReplicaSet found | as for pausing |
//! | POST of the new ReplicaSet | it may be refused, or its name be taken: by itself, or by another template |
//! | PUT status: ReplicaSet created | as for pausing |
//! | PUT of an old ReplicaSet less its unhealthy pods | it may have to shrink once more, from what it is then |
//!
//! After all other writes a plan goes on, and is made anew only if one fails: a size that is refused ends the sync,
//! or ends a step of a rolling update without ending the sync, which is then retried; a ReplicaSet that is gone when it is
//! to be deleted is as good as deleted; a status that cannot be written ends the sync, or is only reported.
//!
//! # Which object a sync goes on with
//!
//! One rule, for the Deployment and for its ReplicaSets: an answer with the resource version that we hold brings
//! nothing new, and we keep what we hold; otherwise we go on with what the server returned. Upstream goes on with
//! what it read, and its next write of the same object is refused (US-4.6, US-4.8).
//!
//! *What must not live here:* HTTP, counts of pods (the ReplicaSet controller's), arithmetic that has no decision
//! in it (`kcm-deployment-util`'s).

mod action;
mod cleanup;
mod controller;
mod error;
mod execute;
mod handlers;
mod new_replica_set;
mod own_writes;
mod pass;
mod plan;
mod progress;
mod recreate;
mod rollback;
mod rolling;
mod scale;
mod status;
mod sync;
mod syncer;

pub use action::{Action, Answer, Event, PlannedAction};
pub use controller::{Config, DeploymentController};
pub use error::SyncError;
pub use kcm_controller_util::Requeue;
pub use plan::{End, Outcome, Plan, ProgressCheck, View, WaitsFor, plan, plan_assuming_success};

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
