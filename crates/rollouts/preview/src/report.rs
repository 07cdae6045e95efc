//! Result of a preview, with a stable JSON form.
//!
//! Times are in seconds since the change. Fields are only added; names and meanings do not change within a version.

use serde::Serialize;

use kcm_rollouts::Unreadable;

use crate::timings::Timings;

/// Version of the JSON form.
pub const API_VERSION: &str = "rollouts/v1alpha1";

/// Predicted course of a change.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `RolloutPreview`.
    pub kind: &'static str,
    /// Namespace of the Deployment.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: String,
    /// Check of the change by the API server. Set by the caller.
    pub dry_run: DryRun,
    /// Effect of the change.
    pub effect: Effect,
    /// ReplicaSet of the resulting template. `None` if the change creates none.
    pub replica_set: Option<NewReplicaSet>,
    /// Changed fields of the template.
    pub template_changes: Vec<FieldChange>,
    /// Number of replicas before and after the change.
    pub replicas: Replicas,
    /// Bounds of the rollout.
    pub bounds: Bounds,
    /// Pod timings that were assumed.
    pub timings: Timings,
    /// Course of the rollout.
    pub outcome: Outcome,
    /// State after each change of the number of pods.
    pub steps: Vec<Step>,
    /// Writes of Deployments, ReplicaSets and pods by the controllers, without status and events.
    pub writes: Vec<WriteGroup>,
    /// Numbers of all writes of the controllers, with status and events.
    pub write_totals: Vec<WriteTotal>,
    /// Progress deadline.
    pub deadline: Deadline,
    /// Resource quotas of the namespace at the peak.
    pub quotas: Vec<QuotaCheck>,
    /// Free capacity of the nodes at the peak.
    pub nodes: NodesCheck,
    /// Course if no new pod becomes ready. `None` if the change creates no pods.
    pub never_ready: Option<NeverReady>,
    /// Conditions that hold, for pipelines.
    pub conditions: Vec<Condition>,
    /// Warnings.
    pub warnings: Vec<Warning>,
    /// Resources that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Check of a change by the API server of the cluster, without a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// `true` if the API server has checked the change. Otherwise the embedded one has.
    pub performed: bool,
    /// Reason why the API server has not checked it.
    pub reason: Option<String>,
    /// Warnings of the API server.
    pub warnings: Vec<String>,
}

/// Effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Creates the Deployment.
    Create,
    /// Starts a rollout with a new ReplicaSet.
    NewReplicaSet,
    /// Starts a rollout with the ReplicaSet of an old revision.
    ReusedReplicaSet,
    /// Changes the template of a paused Deployment, which is not rolled out.
    Paused,
    /// Changes the number of replicas, and not the template.
    Scale,
    /// Pauses the rollout.
    Pause,
    /// Resumes the rollout. The ReplicaSet of the template exists.
    Resume,
    /// Changes other fields.
    Settings,
    /// Changes nothing.
    Nothing,
}

/// ReplicaSet of the resulting template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewReplicaSet {
    /// Name.
    pub name: String,
    /// Value of the label `pod-template-hash`.
    pub hash: String,
    /// Revision after the change.
    pub revision: Option<i64>,
    /// Revision before the change, if the ReplicaSet existed.
    pub previous_revision: Option<i64>,
}

/// Changed field of the template.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Path, such as `spec.containers[app].image`.
    pub path: String,
    /// Value before the change, as JSON. `None` if the field is added.
    pub before: Option<serde_json::Value>,
    /// Value after the change, as JSON. `None` if the field is removed.
    pub after: Option<serde_json::Value>,
}

/// Number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// Before the change.
    pub before: i32,
    /// After the change.
    pub after: i32,
}

/// Bounds of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// `RollingUpdate` or `Recreate`.
    pub strategy: String,
    /// Maximum number of pods above the desired number.
    pub max_surge: i32,
    /// Maximum number of unavailable pods.
    pub max_unavailable: i32,
    /// Maximum number of pods, without terminating ones.
    pub max_pods: i32,
    /// Minimum number of available pods.
    pub min_available: i32,
}

/// Course of a rollout.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// End of the rollout.
    pub end: End,
    /// Time until the rollout is complete. `None` if it does not complete.
    pub duration_seconds: Option<f64>,
    /// Range of that time, if the controllers wait for a quota or for their back-off.
    pub duration_range: Option<DurationRange>,
    /// Time of the last write; terminating pods are removed after completion.
    pub settled_seconds: f64,
    /// Largest number of pods, without terminating ones.
    pub most_pods: Peak,
    /// Reason why that is above the bound, if it is.
    pub most_pods_reason: Option<&'static str>,
    /// Largest number of pods, with terminating ones.
    pub most_pods_with_terminating: Peak,
    /// Smallest number of available pods.
    pub fewest_available: Peak,
    /// Reason why that is below the bound, if it is.
    pub fewest_available_reason: Option<&'static str>,
    /// Number of available pods before the change.
    pub available_before: i32,
    /// Number of available pods at the end.
    pub available_after: i32,
    /// Number of created pods.
    pub pods_created: usize,
    /// Number of deleted pods.
    pub pods_deleted: usize,
    /// Message of the controllers at the end, if the rollout is stuck.
    pub message: Option<String>,
}

/// Range of the duration of a rollout.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DurationRange {
    /// Shortest time.
    pub min_seconds: f64,
    /// Longest time.
    pub max_seconds: f64,
    /// Reasons why the time is uncertain.
    pub reasons: Vec<DurationReason>,
}

/// Reason why the duration of a rollout is uncertain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DurationReason {
    /// A quota refuses pods for some time. The ReplicaSet controller retries after a growing back-off.
    Quota,
    /// The API server has refused pods before the change. The ReplicaSet controller may wait for its back-off.
    BackOff,
}

/// Condition that a pipeline may fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The progress deadline is exceeded.
    Deadline,
    /// The peak does not fit on the nodes.
    Capacity,
    /// The peak does not fit a quota.
    Quota,
    /// Fewer pods are available than before and after the change.
    Unavailable,
    /// No pod is available for some time.
    NoneAvailable,
}

/// End of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The rollout is complete.
    Complete,
    /// The rollout does not complete, and nothing happens any more.
    Stuck,
    /// The Deployment is paused.
    Paused,
    /// The rollout takes longer than the simulated time.
    Unfinished,
}

/// Extreme value and its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peak {
    /// Number of pods.
    pub pods: i32,
    /// First time at which it is reached.
    pub seconds: f64,
}

/// State at a time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Time.
    pub seconds: f64,
    /// Number of pods, without terminating ones.
    pub pods: i32,
    /// Number of available pods.
    pub available: i32,
    /// Number of terminating pods.
    pub terminating: i32,
    /// ReplicaSets with pods or replicas, oldest first.
    pub replica_sets: Vec<StepReplicaSet>,
}

/// ReplicaSet at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReplicaSet {
    /// Name.
    pub name: String,
    /// `true` for the ReplicaSet of the resulting template.
    pub is_new: bool,
    /// `spec.replicas`.
    pub desired: i32,
    /// Number of pods, without terminating ones.
    pub pods: i32,
    /// Number of ready pods.
    pub ready: i32,
    /// Number of available pods.
    pub available: i32,
}

/// Consecutive writes of the same kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteGroup {
    /// Time of the first write.
    pub seconds: f64,
    /// `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Name of the Deployment or ReplicaSet, or of the ReplicaSet of the pods.
    pub name: String,
    /// `spec.replicas` in the request, for ReplicaSets.
    pub replicas: Option<i64>,
    /// Number of writes.
    pub count: usize,
    /// Error of the API server, if any.
    pub error: Option<String>,
}

/// Number of writes of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteTotal {
    /// `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// Plural name of the resource, such as `pods` or `deployments/status`.
    pub resource: String,
    /// Number of writes.
    pub count: usize,
    /// Number of those that the API server refuses.
    pub refused: usize,
}

/// Progress deadline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deadline {
    /// `progressDeadlineSeconds`. `None` if there is no deadline.
    pub seconds: Option<i32>,
    /// Longest time without progress.
    pub longest_wait_seconds: f64,
    /// Time at which the rollout fails its deadline, if it does.
    pub exceeded_at_seconds: Option<f64>,
    /// `true` if the longest time without progress is more than half of the deadline.
    pub at_risk: bool,
}

/// Resource of a quota at the peak.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaCheck {
    /// Name of the ResourceQuota.
    pub quota: String,
    /// Name of the resource.
    pub resource: String,
    /// Limit: cores, bytes or a number.
    pub hard: f64,
    /// Amount in use before the change.
    pub used: f64,
    /// Amount that the rollout needs at its peak.
    pub peak: f64,
    /// `true` if the peak does not exceed the limit.
    pub fits: bool,
}

/// Free capacity of the nodes at the peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesCheck {
    /// Number of nodes that accept the new pods, as far as selectors, taints and conditions say. Affinity is ignored.
    pub nodes: usize,
    /// Number of new pods whose requests fit on these nodes, in addition to the pods that run there.
    pub free: u64,
    /// Number of pods at the peak, with terminating ones, in addition to those before the change.
    pub needed: u64,
    /// `true` if they fit. `None` if nodes or pods could not be read.
    pub fits: Option<bool>,
}

/// Course if no new pod becomes ready.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NeverReady {
    /// Number of new pods that wait.
    pub new_pods: i32,
    /// Number of available pods that are left.
    pub available: i32,
    /// Time of the last change of the number of pods.
    pub stuck_seconds: f64,
    /// Time at which the rollout fails its deadline. `None` if there is no deadline.
    pub deadline_exceeded_seconds: Option<f64>,
    /// ReplicaSets at the end.
    pub replica_sets: Vec<StepReplicaSet>,
}

/// Warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// Kind of the warning.
    pub code: WarningCode,
    /// Description for users.
    pub message: String,
}

/// Kind of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// Both bounds are zero after rounding, so that the controller permits one unavailable pod.
    BoundsZero,
    /// `minReadySeconds` of all steps together is longer than the progress deadline.
    DeadlineShorterThanSteps,
    /// The longest time without progress is close to the progress deadline, or exceeds it.
    DeadlineAtRisk,
    /// A PodDisruptionBudget permits no eviction during the rollout.
    DisruptionBudget,
    /// No pod is available for some time.
    NoneAvailable,
    /// The API server refuses requests of the controllers before the change.
    StandingRefusal,
    /// An autoscaler sets the number of replicas.
    Autoscaler,
    /// A rollout is in progress before the change.
    RolloutInProgress,
    /// A quota is exceeded.
    Quota,
    /// The nodes have too little free capacity.
    Capacity,
    /// The Deployment is paused.
    Paused,
}
