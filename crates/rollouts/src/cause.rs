//! Causes of a rollout that waits or is stuck.

use std::fmt;

use serde::{Serialize, Serializer};

/// Cause of a rollout that waits or is stuck.
///
/// The set is closed. The [name](Self::name) of a cause does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The Deployment is being deleted.
    DeploymentDeleted,
    /// The selector of the Deployment is empty, and the controller ignores it.
    EmptySelector,
    /// The Deployment controller does not process the Deployment: no manager runs, or none leads.
    ControllerNotRunning,
    /// The ReplicaSet controller does not process a ReplicaSet.
    ReplicaSetControllerNotRunning,
    /// The Deployment is paused.
    Paused,
    /// The new ReplicaSet cannot be created.
    ReplicaSetCreateFailed,
    /// The annotation `desired-replicas` of a ReplicaSet stops the rollout (US-9.9).
    DesiredReplicasAnnotation,
    /// A ResourceQuota refuses the creation of pods.
    QuotaExceeded,
    /// A LimitRange refuses the creation of pods.
    LimitRange,
    /// An admission webhook refuses the creation of pods, or cannot be called.
    AdmissionWebhook,
    /// The Pod Security admission refuses the creation of pods.
    PodSecurity,
    /// The API server refuses the creation of pods for another reason.
    CreateRefused,
    /// The scheduler finds no node for pods.
    Unschedulable,
    /// Scheduling gates hold pods.
    SchedulingGated,
    /// No scheduler processes the pods.
    SchedulerNotRunning,
    /// The node of pods does not exist or is not ready.
    NodeLost,
    /// An image cannot be pulled.
    ImagePull,
    /// A container cannot be created, for example because a ConfigMap or a Secret is missing.
    ContainerConfig,
    /// A volume cannot be attached or mounted.
    VolumeMount,
    /// An init container fails or has not completed.
    InitContainer,
    /// A container crashes repeatedly.
    CrashLoop,
    /// Pods fail, for example because they are evicted or rejected by the kubelet.
    PodFailed,
    /// Containers run, and are not ready for longer than their probes explain.
    ProbeFailing,
    /// A readiness gate is not true.
    ReadinessGate,
    /// Pods start.
    PodStarting,
    /// Pods are ready for less than `minReadySeconds`.
    MinReadySeconds,
    /// Finalizers hold terminating pods.
    TerminatingFinalizer,
    /// Terminating pods have not stopped yet.
    TerminatingGracePeriod,
    /// Another controller selects or owns the same pods.
    SelectorOverlap,
    /// Another client writes `spec.replicas`, such as a HorizontalPodAutoscaler.
    ReplicasOverwritten,
    /// A PodDisruptionBudget refuses evictions of the pods while the rollout is not complete.
    DisruptionBudget,
    /// No cause was found in the objects that could be read.
    Unknown,
}

impl Cause {
    /// All causes, in the order in which they are reported.
    pub const ALL: &[Self] = &[
        Self::DeploymentDeleted,
        Self::EmptySelector,
        Self::ControllerNotRunning,
        Self::ReplicaSetControllerNotRunning,
        Self::Paused,
        Self::ReplicaSetCreateFailed,
        Self::DesiredReplicasAnnotation,
        Self::QuotaExceeded,
        Self::LimitRange,
        Self::AdmissionWebhook,
        Self::PodSecurity,
        Self::CreateRefused,
        Self::Unschedulable,
        Self::SchedulingGated,
        Self::SchedulerNotRunning,
        Self::NodeLost,
        Self::ImagePull,
        Self::ContainerConfig,
        Self::VolumeMount,
        Self::InitContainer,
        Self::CrashLoop,
        Self::PodFailed,
        Self::ProbeFailing,
        Self::ReadinessGate,
        Self::PodStarting,
        Self::MinReadySeconds,
        Self::TerminatingFinalizer,
        Self::TerminatingGracePeriod,
        Self::SelectorOverlap,
        Self::ReplicasOverwritten,
        Self::DisruptionBudget,
        Self::Unknown,
    ];

    /// Name in JSON and in metrics, in snake_case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeploymentDeleted => "deployment_deleted",
            Self::EmptySelector => "empty_selector",
            Self::ControllerNotRunning => "controller_not_running",
            Self::ReplicaSetControllerNotRunning => "replica_set_controller_not_running",
            Self::Paused => "paused",
            Self::ReplicaSetCreateFailed => "replica_set_create_failed",
            Self::DesiredReplicasAnnotation => "desired_replicas_annotation",
            Self::QuotaExceeded => "quota_exceeded",
            Self::LimitRange => "limit_range",
            Self::AdmissionWebhook => "admission_webhook",
            Self::PodSecurity => "pod_security",
            Self::CreateRefused => "create_refused",
            Self::Unschedulable => "unschedulable",
            Self::SchedulingGated => "scheduling_gated",
            Self::SchedulerNotRunning => "scheduler_not_running",
            Self::NodeLost => "node_lost",
            Self::ImagePull => "image_pull",
            Self::ContainerConfig => "container_config",
            Self::VolumeMount => "volume_mount",
            Self::InitContainer => "init_container",
            Self::CrashLoop => "crash_loop",
            Self::PodFailed => "pod_failed",
            Self::ProbeFailing => "probe_failing",
            Self::ReadinessGate => "readiness_gate",
            Self::PodStarting => "pod_starting",
            Self::MinReadySeconds => "min_ready_seconds",
            Self::TerminatingFinalizer => "terminating_finalizer",
            Self::TerminatingGracePeriod => "terminating_grace_period",
            Self::SelectorOverlap => "selector_overlap",
            Self::ReplicasOverwritten => "replicas_overwritten",
            Self::DisruptionBudget => "disruption_budget",
            Self::Unknown => "unknown",
        }
    }

    /// Cause that [`cached_cause`](crate::cached_cause) finds for a rollout that this cause holds.
    pub const fn in_caches(self) -> Self {
        match self {
            Self::SchedulingGated | Self::SchedulerNotRunning => Self::Unschedulable,
            // `ProbeFailing` if the containers of a lost node ran.
            Self::VolumeMount | Self::NodeLost => Self::PodStarting,
            Self::ReadinessGate => Self::ProbeFailing,
            Self::TerminatingFinalizer => Self::TerminatingGracePeriod,
            Self::EmptySelector
            | Self::ControllerNotRunning
            | Self::ReplicaSetControllerNotRunning
            | Self::DesiredReplicasAnnotation
            | Self::SelectorOverlap
            | Self::ReplicasOverwritten
            | Self::DisruptionBudget => Self::Unknown,
            found => found,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
