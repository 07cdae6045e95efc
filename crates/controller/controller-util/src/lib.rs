//! What workload controllers have in common, each piece usable on its own.
//!
//! *Upstream counterparts:* `pkg/controller/controller_utils.go`, `pkg/controller/util/consistency`, and the index
//! functions and worker loops that upstream's controllers repeat.
//!
//! | module | answers |
//! |---|---|
//! | [`control`] | what can a controller do to the cluster? |
//! | [`pod_manifest`] | what does a pod look like that a template and an owner ask for? |
//! | [`index`] | which objects does this owner have, without trying every object of the namespace? |
//! | [`filters`] | which of them count, and in which order? |
//! | [`ranking`] | which pods go first, and why? |
//! | [`availability`] | is a pod available, and if not, when will it be? |
//! | [`consistency`] | has the cache seen what this controller wrote? |
//! | [`slow_start`] | how to make many requests of which all may fail alike? |
//! | [`sync_metrics`] | who counts syncs, and what comes of them? |
//! | [`worker`] | how do keys get from a queue into syncs? |
//!
//! *What must not live here:* HTTP, any one controller's decisions, conditions, statuses.

// In model tests, shuttle chooses the thread that takes a lock.
#[cfg(feature = "shuttle")]
extern crate shuttle_dashmap as dashmap;

pub mod availability;
pub mod consistency;
pub mod control;
pub mod filters;
pub mod index;
pub mod pod_manifest;
pub mod ranking;
pub mod slow_start;
pub mod sync_metrics;
pub mod worker;

pub use consistency::{ConsistencyStore, GroupResource, compare_versions};
pub use control::{DeploymentControl, PodControl, ReplicaSetControl};
pub use index::{
    deployment_index, deployment_indexers, pod_index, pod_indexers, replica_set_index, replica_set_indexers,
};
pub use pod_manifest::{ManifestError, PodManifest};
pub use slow_start::slow_start_batch;
pub use sync_metrics::{NoSyncMetrics, SyncMetrics, SyncResult};
pub use worker::run_workers;

#[cfg(test)]
mod testing;
