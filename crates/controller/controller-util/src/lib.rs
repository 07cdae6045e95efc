//! Shared parts of workload controllers. Each part can be used on its own.
//!
//! Upstream counterparts: `pkg/controller/controller_utils.go`, and the index functions that upstream's controllers repeat.
//!
//! | Item | Purpose |
//! |---|---|
//! | [`control`] | requests of controllers to the API server, as traits |
//! | [`PodView`] | pods of `kcm-api` and, with the feature `kube`, of k8s-openapi |
//! | [`pod_manifest`] | pod of a template and an owner |
//! | [`index`] | lookup of the objects of an owner without a scan of the namespace |
//! | [`filters`] | active and terminating pods |
//! | [`ranking`] | order in which surplus pods are deleted |
//! | [`availability`] | `minReadySeconds` |
//! | [`OwnedObjects`] | creation of each object once, and deletion, with expectations |
//! | [`slow_start`] | requests in growing batches that stop at the first failure |
//!
//! Not part of this crate: the control loop (`kcm-runtime`), HTTP, decisions of one controller, conditions, statuses.

#![warn(missing_debug_implementations)]

pub mod availability;
pub mod control;
pub mod filters;
pub mod index;
mod owned_objects;
pub mod pod_manifest;
mod pod_view;
pub mod ranking;
pub mod slow_start;
mod status_turns;

pub use control::{DeploymentControl, PodControl, ReplicaSetControl};
pub use index::{
    deployment_index, deployment_indexers, pod_index, pod_indexers, replica_set_index, replica_set_indexers,
};
pub use owned_objects::{CreateError, Created, Creation, Deleted, OwnedObjects};
pub use pod_manifest::{ManifestError, PodManifest};
pub use pod_view::PodView;
pub use slow_start::slow_start_batch;
pub use status_turns::{NoStatusTurns, StatusTurns, StatusUrgency};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod testing;
