//! Input of a plan.

use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{Deployment, ReplicaSet};

/// Cached state of one Deployment from which its sync is planned. The objects are shared with the caches.
#[derive(Debug, Clone)]
pub struct View {
    /// Deployment.
    pub deployment: Arc<Deployment>,
    /// ReplicaSets that the Deployment controls, in any order.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// UIDs of those ReplicaSets that have a pod in a phase other than `Succeeded` and `Failed`.
    ///
    /// Only used for strategy Recreate.
    pub running: BTreeSet<Arc<str>>,
    /// UIDs of ReplicaSets that this process has written with 0 replicas, until their cached version has 0 replicas and
    /// reports its generation as observed.
    ///
    /// Only used for strategy Recreate.
    pub unobserved_scale_downs: BTreeSet<Arc<str>>,
    /// If `false`, the status does not contain `terminatingReplicas` (feature gate
    /// `DeploymentReplicaSetTerminatingReplicas`).
    pub terminating_replicas: bool,
    /// If `true`, updates of the Deployment's status in one sync are combined. If `false`, each is written, as upstream.
    pub coalesce_status_writes: bool,
}
