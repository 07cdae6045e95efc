//! Differences between the ReplicaSet controller and the ReplicationController controller.

/// Per-kind configuration of the controller.
///
/// Upstream counterpart: the arguments of `NewBaseController`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindConfig {
    /// Group and version in owner references and events.
    pub api_version: &'static str,
    /// Kind in owner references, events and logs.
    pub kind: &'static str,
    /// Name of the work queue in metrics.
    pub queue_name: &'static str,
    /// Name of the controller in logs.
    pub controller_name: &'static str,
    /// Source of events.
    pub component: &'static str,
    /// If `true`, the status contains the number of terminating pods.
    pub terminating_replicas: bool,
    /// If `true`, a sync waits until the caches contain the status that the previous sync wrote (US-3.7). Writes to pods
    /// are always awaited.
    pub reads_own_writes: bool,
    /// If `false`, deletion costs of pods are ignored (feature gate `PodDeletionCost`).
    pub pod_deletion_cost: bool,
    /// If `true`, surplus pods are ranked by the related pods on their nodes (US-5.6).
    pub ranks_by_related_pods: bool,
}

/// ReplicaSets of v1.36 with default feature gates.
pub const REPLICA_SET: KindConfig = KindConfig {
    api_version: kcm_api::replica_set::API_VERSION,
    kind: kcm_api::replica_set::KIND,
    queue_name: "replicaset",
    controller_name: "replicaset",
    component: "replicaset-controller",
    terminating_replicas: true,
    reads_own_writes: true,
    pod_deletion_cost: true,
    ranks_by_related_pods: true,
};

/// ReplicationControllers of v1.36 (US-5.11).
///
/// The informer and the control convert each of them to a ReplicaSet, as the `ReplicationControllerClient` of `kcm_controller_manager` does.
/// Upstream does not count terminating pods or await status writes for this kind.
pub const REPLICATION_CONTROLLER: KindConfig = KindConfig {
    api_version: kcm_api::replication_controller::API_VERSION,
    kind: kcm_api::replication_controller::KIND,
    queue_name: "replicationmanager",
    controller_name: "replicationcontroller",
    component: "replication-controller",
    terminating_replicas: false,
    reads_own_writes: false,
    pod_deletion_cost: true,
    ranks_by_related_pods: false,
};
