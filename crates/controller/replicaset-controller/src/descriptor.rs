/// What tells the controllers apart that are built from this crate.
///
/// Upstream counterpart: the arguments of `NewBaseController`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Group and version in owner references and events.
    pub api_version: &'static str,
    /// The kind in owner references, events and logs.
    pub kind: &'static str,
    /// What the work queue is called in metrics.
    pub queue: &'static str,
    /// What the controller is called in logs.
    pub name: &'static str,
    /// The source of its events.
    pub component: &'static str,
    /// Whether the status counts terminating pods.
    pub terminating_replicas: bool,
    /// Whether a sync waits until the caches have seen what the one before it wrote (US-3.7). For pods it always does.
    pub reads_own_writes: bool,
    /// If `false`, deletion costs of pods are ignored when some must go (feature gate `PodDeletionCost`).
    pub pod_deletion_cost: bool,
    /// Whether pods of owners with the same owner count as related when some must go (US-5.6).
    pub ranks_by_related_pods: bool,
}

/// ReplicaSets, as of v1.36 with its default feature gates.
pub const REPLICA_SET: Descriptor = Descriptor {
    api_version: kcm_api::replica_set::API_VERSION,
    kind: kcm_api::replica_set::KIND,
    queue: "replicaset",
    name: "replicaset",
    component: "replicaset-controller",
    terminating_replicas: true,
    reads_own_writes: true,
    pod_deletion_cost: true,
    ranks_by_related_pods: true,
};

/// ReplicationControllers, as of v1.36 (US-5.11).
///
/// For a cache and a control that show each of them as a ReplicaSet, such as `kcm_controller_manager::adapters::ReplicationControllerClient`.
/// Upstream has not given this kind the counts and checks that came to ReplicaSets later.
pub const REPLICATION_CONTROLLER: Descriptor = Descriptor {
    api_version: kcm_api::replication_controller::API_VERSION,
    kind: kcm_api::replication_controller::KIND,
    queue: "replicationmanager",
    name: "replicationcontroller",
    component: "replication-controller",
    terminating_replicas: false,
    reads_own_writes: false,
    pod_deletion_cost: true,
    ranks_by_related_pods: false,
};
