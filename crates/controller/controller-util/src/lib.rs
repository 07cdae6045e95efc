//! Shared parts of workload controllers. Each part can be used on its own.
//!
//! Upstream counterparts: `pkg/controller/controller_utils.go`, `pkg/controller/util/consistency`, and the index
//! functions and worker loops that upstream's controllers repeat.
//!
//! | Item | Purpose |
//! |---|---|
//! | [`Controller`], [`Reconciler`] | control loop: informers, work queue, workers, retries |
//! | [`control`] | requests of controllers to the API server, as traits |
//! | [`pod_manifest`] | pod of a template and an owner |
//! | [`index`] | lookup of the objects of an owner without a scan of the namespace |
//! | [`filters`] | active and terminating pods |
//! | [`ranking`] | order in which surplus pods are deleted |
//! | [`availability`] | `minReadySeconds` |
//! | [`consistency`] | wait until caches contain the controller's own writes |
//! | [`slow_start`] | requests in growing batches that stop at the first failure |
//! | [`sync_metrics`] | hooks for metrics of syncs |
//!
//! `examples/third_controller.rs` is a complete controller.
//!
//! Not part of this crate: HTTP, decisions of one controller, conditions, statuses.

// In model tests, shuttle chooses the thread that takes a lock.
#[cfg(feature = "shuttle")]
extern crate shuttle_dashmap as dashmap;

pub mod availability;
pub mod consistency;
pub mod control;
mod controller;
pub mod filters;
pub mod index;
pub mod pod_manifest;
pub mod ranking;
mod reconciler;
pub mod slow_start;
pub mod sync_metrics;
mod worker;

pub use consistency::{ConsistencyStore, GroupResource};
pub use control::{DeploymentControl, PodControl, ReplicaSetControl};
pub use controller::{Controller, ControllerConfig};
pub use index::{
    deployment_index, deployment_indexers, pod_index, pod_indexers, replica_set_index, replica_set_indexers,
};
pub use pod_manifest::{ManifestError, PodManifest};
pub use reconciler::{ErrorClass, Reconciler, Requeue};
pub use slow_start::slow_start_batch;
pub use sync_metrics::{NoSyncMetrics, SyncMetrics, SyncResult};

#[cfg(test)]
mod testing;
