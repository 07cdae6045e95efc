//! A scenario as data: workloads, actions, incidents and faults.
//!
//! Times are milliseconds since the start of the simulation.

use std::path::Path;

use kcm_apiserver::Resource;
use kcm_simulation::engine::{files, timeline::has_restore};
pub use kcm_simulation::{At, FaultEffect, Incident, ScenarioError};
use serde::{Deserialize, Serialize};

use crate::surprises::Surprise;

/// Fault of some requests.
pub type RequestFault = kcm_simulation::RequestFault<Requests>;

/// Namespace that lasts as long as the simulation.
pub const NAMESPACE: &str = "sim";

/// Namespace that a scenario may delete.
pub const DELETABLE_NAMESPACE: &str = "doomed";

/// A whole cluster and what happens to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// Source of all chance that the scenario does not spell out.
    #[serde(default)]
    pub seed: u64,
    /// Time of the last event. Faults end here.
    pub end: u64,
    /// Controller managers and their settings.
    #[serde(default)]
    pub managers: ManagerSettings,
    /// API servers over one store. Each list and each watch goes to one of them.
    #[serde(default = "one")]
    pub front_ends: usize,
    /// Events that the API server keeps for watches. Fewer events mean more watches that end with 410.
    #[serde(default = "long_history")]
    pub history: usize,
    /// Simulated nodes.
    #[serde(default)]
    pub nodes: Nodes,
    /// Objects that exist from the start.
    pub workloads: Vec<Workload>,
    /// Actions of users and other controllers.
    #[serde(default)]
    pub actions: Vec<At<UserAction>>,
    /// Incidents of managers, their hosts and their network.
    #[serde(default)]
    pub incidents: Vec<At<Incident>>,
    /// Faults of single requests of managers.
    #[serde(default)]
    pub faults: Vec<RequestFault>,
    /// Admission webhooks for pods that managers create. They last until the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<PodWebhook>,
    /// Steps whose outcome is not the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub surprises: Vec<Surprise>,
}

/// Controller managers that compete for one lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ManagerSettings {
    /// Number of managers.
    pub count: usize,
    /// Workers of each controller.
    pub workers: usize,
    /// Client-side limit, in requests a second. The burst is one and a half times as large.
    pub qps: u32,
    /// Duration of the lease, in seconds. A leader renews it for two thirds of that time, every seventh of it. If 0, there
    /// is no election.
    pub lease: u64,
    /// Time until a process that has exited is started again.
    pub restart_after: u64,
    /// Feature gate `DeploymentReplicaSetTerminatingReplicas`.
    pub terminating_replicas: bool,
}

impl Default for ManagerSettings {
    fn default() -> Self {
        Self { count: 1, workers: 1, qps: 1000, lease: 0, restart_after: 1_000, terminating_replicas: true }
    }
}

fn one() -> usize {
    1
}

fn long_history() -> usize {
    100_000
}

/// Simulated nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Nodes {
    /// Number of nodes.
    pub count: usize,
    /// Time from the binding of a pod until it is ready.
    pub ready_delay: u64,
    /// Time that a pod takes to stop.
    pub stop_delay: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { count: 2, ready_delay: 500, stop_delay: 300 }
    }
}

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A ReplicaSet without a Deployment.
    ReplicaSet,
    /// A ReplicationController.
    ReplicationController,
}

impl WorkloadKind {
    /// Resource of the workload.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Deployment => Resource::DEPLOYMENTS,
            Self::ReplicaSet => Resource::REPLICA_SETS,
            Self::ReplicationController => Resource::REPLICATION_CONTROLLERS,
        }
    }
}

/// Strategy of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// All old pods go before the first new pod comes.
    Recreate,
    /// Values of `maxSurge` and `maxUnavailable`.
    Rolling(String, String),
}

/// An object that owns pods. Its name follows from its position in the scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// `true` if its namespace is [`DELETABLE_NAMESPACE`].
    pub doomed: bool,
    /// Initial replicas.
    pub replicas: u32,
    /// Strategy, for a Deployment.
    pub strategy: Strategy,
    /// Value of `minReadySeconds`.
    pub min_ready_seconds: u32,
    /// Value of `revisionHistoryLimit`, for a Deployment.
    pub history_limit: u32,
    /// `true` if a Deployment has no progress deadline. It is 600 s otherwise.
    pub no_deadline: bool,
    /// Value of `progressDeadlineSeconds`, for a Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u32>,
    /// Workload whose labels and selector it has. Its own if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels_of: Option<usize>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            kind: WorkloadKind::Deployment,
            doomed: false,
            replicas: 1,
            strategy: Strategy::Rolling("25%".to_owned(), "25%".to_owned()),
            min_ready_seconds: 0,
            history_limit: 10,
            no_deadline: false,
            deadline: None,
            labels_of: None,
        }
    }
}

/// A value of `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the API's names")]
pub enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// Something done by a user or by another controller.
///
/// `workload` is a position in [`Scenario::workloads`]. `pod` and `set` are positions among the pods and the
/// ReplicaSets of [`NAMESPACE`], oldest first, modulo their number. An action that is impossible has no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "fields are explained above or named as in the API")]
pub enum UserAction {
    /// Sets the image of the pod template.
    SetImage { workload: usize, image: u32 },
    /// Sets `spec.replicas` through the `scale` subresource, as an autoscaler does.
    Scale { workload: usize, replicas: u32 },
    /// Pauses a Deployment.
    Pause { workload: usize },
    /// Resumes a Deployment.
    Resume { workload: usize },
    /// Sets the strategy of a Deployment.
    SetStrategy { workload: usize, strategy: Strategy },
    /// Sets `revisionHistoryLimit` of a Deployment.
    SetHistoryLimit { workload: usize, limit: u32 },
    /// Requests a rollback of a Deployment by annotation. Revision 0 is the previous one.
    Undo { workload: usize, revision: u32 },
    /// Creates a ReplicaSet without a selected pod, with the name of the ReplicaSet that a Deployment creates for an image.
    Collide { workload: usize, image: u32 },
    /// Annotates a Deployment, which its ReplicaSets copy.
    Annotate { workload: usize, value: u32 },
    /// Deletes a workload.
    Delete { workload: usize, policy: Policy },
    /// Creates a workload that was deleted.
    Create { workload: usize },
    /// Deletes a pod.
    DeletePod { pod: usize, grace: u32 },
    /// Evicts a pod.
    EvictPod { pod: usize },
    /// Reports a pod as failed.
    FailPod { pod: usize },
    /// Reports a pod as not ready.
    UnreadyPod { pod: usize },
    /// Changes the labels of a pod so that no selector matches.
    ReleasePod { pod: usize },
    /// Gives a released pod its label back. `pod` is a position among the released pods.
    ReturnPod { pod: usize },
    /// Removes the owner references of a pod.
    OrphanPod { pod: usize },
    /// Creates a pod that a workload's selector matches.
    StrayPod { workload: usize },
    /// Sets `spec.replicas` of a ReplicaSet that a Deployment may own.
    ScaleSet { set: usize, replicas: u32 },
    /// Deletes a ReplicaSet.
    DeleteSet { set: usize, policy: Policy },
    /// Changes the labels of a ReplicaSet so that no Deployment's selector matches.
    ReleaseSet { set: usize },
    /// Removes the owner references of a ReplicaSet.
    OrphanSet { set: usize },
    /// Limits the number of pods in [`NAMESPACE`].
    SetQuota { pods: u32 },
    /// Removes the limit.
    RemoveQuota,
    /// Deletes [`DELETABLE_NAMESPACE`].
    DeleteNamespace,
    /// Marks a node as unschedulable.
    Cordon { node: usize },
    /// Removes the mark.
    Uncordon { node: usize },
    /// Takes a node away: its pods become unready, and go after five seconds.
    LoseNode { node: usize },
}

/// Requests of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Requests {
    /// All but watches.
    All,
    /// Creations of pods.
    CreatePods,
    /// Deletions of pods.
    DeletePods,
    /// Adoptions and releases of pods.
    PatchPods,
    /// Creations of ReplicaSets.
    CreateReplicaSets,
    /// Updates of ReplicaSets.
    UpdateReplicaSets,
    /// Deletions of ReplicaSets.
    DeleteReplicaSets,
    /// Updates of the status of ReplicaSets and ReplicationControllers.
    ReplicaSetStatus,
    /// Updates of Deployments.
    UpdateDeployments,
    /// Updates of the status of Deployments.
    DeploymentStatus,
    /// Requests about the lease.
    Lease,
    /// Lists.
    Lists,
    /// Watches, streaming lists among them.
    Watches,
    /// Watches of pods.
    PodWatches,
}

/// Admission webhook for pods. Shares are in thousandths of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PodWebhook {
    /// Refuses names.
    RefuseNames {
        /// Share of the names.
        per_mille: u32,
    },
    /// Refuses a name that was in an earlier request, whatever its result was.
    RefuseKnownNames,
    /// Removes owner references.
    StripOwners {
        /// Share of the pods.
        per_mille: u32,
    },
}

impl Scenario {
    /// Reads a scenario from a file.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        files::read(path)
    }

    /// The scenario as the text of a file.
    pub fn to_text(&self) -> String {
        files::to_text(self)
    }

    /// The same actions of users, without faults.
    #[must_use]
    pub fn without_faults(&self) -> Self {
        Self {
            incidents: Vec::new(),
            faults: Vec::new(),
            webhooks: Vec::new(),
            surprises: Vec::new(),
            history: usize::MAX,
            ..self.clone()
        }
    }

    /// `true` if the store is restored from a backup.
    pub(crate) fn has_restore(&self) -> bool {
        has_restore(&self.incidents)
    }

    /// Namespace of a workload.
    pub fn namespace(&self, workload: usize) -> &'static str {
        if self.workloads.get(workload).is_some_and(|one| one.doomed) {
            DELETABLE_NAMESPACE
        } else {
            NAMESPACE
        }
    }
}

impl Workload {
    /// Name of the workload at a position.
    pub fn name(at: usize) -> String {
        format!("w{at}")
    }
}
