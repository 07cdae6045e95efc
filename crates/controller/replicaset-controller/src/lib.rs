//! The ReplicaSet controller: creates and deletes pods so that each ReplicaSet has the requested number.
//!
//! Upstream counterpart: `pkg/controller/replicaset`. Behaviour: `docs/behaviour/replicaset.md`.
//!
//! # A sync
//!
//! | Step | File | Pure |
//! |---|---|---|
//! | enqueue the ReplicaSets of events, lower expectations | `handlers.rs` | |
//! | configure the control loop, classify errors | `controller.rs` | |
//! | steps of a sync, in upstream's order (US-5.3) | `sync.rs` | |
//! | find pods in the caches | `lookup.rs` | |
//! | number of pods to create or delete | `plan.rs`, `view.rs` | yes |
//! | pods to delete | `plan/pods_to_delete.rs` | yes |
//! | reasons | `plan/reason.rs` | yes |
//! | create and delete pods, update the status | `execute.rs` | |
//! | requests and events of created pods | `create.rs` | |
//! | status and conditions | `status.rs` | yes |
//! | own writes that the caches do not contain yet | [`kcm_expectations`] | |
//!
//! Three decisions depend on responses of the API server and are therefore not part of [`plan()`]:
//!
//! * Claimed pods, because an adoption can be rejected. `kcm_controller_ref_manager::classify` decides for each pod.
//! * The status, because it reports failed creations and deletions. [`calculate_status`] takes the error.
//! * The time of the next sync, because it depends on the status that the API server returned.
//!
//! # Status writes
//!
//! If nothing but `observedGeneration` has changed, and the sync has created or deleted pods, the status is not written: the
//! watch events of the pods start another sync, which writes it with the new counts. The first `observedGeneration` of a
//! ReplicaSet is written at once. If [`ReplicaSetControllerOptions::coalesce_status_writes`] is `false`, every new
//! `observedGeneration` is written at once, as upstream.
//!
//! # Kinds
//!
//! The controller also manages ReplicationControllers, converted to [`ReplicaSet`]s (US-5.11). [`KindConfig`] contains the
//! differences: [`REPLICA_SET`], [`REPLICATION_CONTROLLER`].
//!
//! Not part of this crate: HTTP, templates, Deployments.
//!
//! [`ReplicaSet`]: kcm_api::ReplicaSet

#![warn(missing_debug_implementations)]

mod controller;
mod create;
mod error;
mod events;
mod execute;
mod handlers;
mod inspect;
mod kind_config;
mod lookup;
mod metrics;
mod performed;
mod plan;
mod status;
mod sync;
mod view;

pub use controller::{
    DEFAULT_BURST_REPLICAS, ReplicaSetController, ReplicaSetControllerConfig, ReplicaSetControllerOptions,
};
pub use error::{ManageError, SyncError};
pub use inspect::Inspection;
pub use kind_config::{KindConfig, REPLICA_SET, REPLICATION_CONTROLLER};
pub use metrics::{NoReplicaSetMetrics, ReplicaSetMetrics};
pub use plan::{DeletionReason, Plan, PlanReason, PodDeletion, plan};
pub use status::calculate_status;
pub use view::{ManageBlock, View};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod testing;
