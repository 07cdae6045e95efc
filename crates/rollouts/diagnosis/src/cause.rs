//! Causes of a rollout that waits or is stuck.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $name:literal,)*) => {
        /// Cause of a rollout that waits or is stuck.
        ///
        /// The [name](Self::name) of a cause does not change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[$doc])* $cause,)*
        }

        impl Cause {
            /// All causes, in the order in which they are reported.
            pub const ALL: &[Self] = &[$(Self::$cause,)*];

            /// Name in JSON and in metrics, in snake_case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)*
                }
            }
        }
    };
}

causes! {
    /// The Deployment is being deleted.
    DeploymentDeleted = "deployment_deleted",
    /// The new ReplicaSet is being deleted.
    ReplicaSetDeleted = "replica_set_deleted",
    /// The namespace is being deleted.
    NamespaceTerminating = "namespace_terminating",
    /// The selector of the Deployment is empty, and the controller ignores it.
    EmptySelector = "empty_selector",
    /// The Deployment controller does not process the Deployment: no manager runs, or none leads.
    ControllerNotRunning = "controller_not_running",
    /// The ReplicaSet controller does not process a ReplicaSet.
    ReplicaSetControllerNotRunning = "replica_set_controller_not_running",
    /// The Deployment is paused.
    Paused = "paused",
    /// The update strategy is `OnDelete`, and pods with an old template are left. StatefulSets and DaemonSets.
    OnDelete = "on_delete",
    /// The new ReplicaSet cannot be created.
    ReplicaSetCreateFailed = "replica_set_create_failed",
    /// A ReplicaSet cannot be updated, for example because a webhook refuses it.
    ReplicaSetUpdateFailed = "replica_set_update_failed",
    /// The annotation `desired-replicas` of a ReplicaSet stops the rollout (US-9.9).
    DesiredReplicasAnnotation = "desired_replicas_annotation",
    /// A ResourceQuota refuses the creation of pods.
    QuotaExceeded = "quota_exceeded",
    /// A LimitRange refuses the creation of pods.
    LimitRange = "limit_range",
    /// An admission webhook refuses the creation of pods, or cannot be called.
    AdmissionWebhook = "admission_webhook",
    /// The Pod Security admission refuses the creation of pods.
    PodSecurity = "pod_security",
    /// The API server refuses the creation of pods for another reason.
    CreateRefused = "create_refused",
    /// The API server refuses the deletion of pods.
    DeleteRefused = "delete_refused",
    /// Nothing refuses new pods any more; the ReplicaSet controller waits for its back-off.
    CreateBackOff = "create_back_off",
    /// The scheduler finds no node for pods.
    Unschedulable = "unschedulable",
    /// Scheduling gates hold pods.
    SchedulingGated = "scheduling_gated",
    /// No scheduler processes the pods.
    SchedulerNotRunning = "scheduler_not_running",
    /// The node of pods does not exist or is not ready.
    NodeLost = "node_lost",
    /// An image cannot be pulled.
    ImagePull = "image_pull",
    /// An image is being pulled.
    ImagePulling = "image_pulling",
    /// A container cannot be created, for example because a ConfigMap or a Secret is missing.
    ContainerConfig = "container_config",
    /// A volume cannot be attached or mounted.
    VolumeMount = "volume_mount",
    /// The sandbox or the network of a pod cannot be created.
    PodSandbox = "pod_sandbox",
    /// An init container fails or has not completed.
    InitContainer = "init_container",
    /// A container crashes repeatedly.
    CrashLoop = "crash_loop",
    /// A liveness or startup probe kills a container repeatedly.
    ProbeKill = "probe_kill",
    /// Pods fail, for example because they are evicted or rejected by the kubelet.
    PodFailed = "pod_failed",
    /// Containers run, and are not ready for longer than their probes explain.
    ProbeFailing = "probe_failing",
    /// A readiness gate is not true.
    ReadinessGate = "readiness_gate",
    /// Pods start.
    PodStarting = "pod_starting",
    /// Pods are ready for less than `minReadySeconds`.
    MinReadySeconds = "min_ready_seconds",
    /// Finalizers hold terminating pods.
    TerminatingFinalizer = "terminating_finalizer",
    /// Terminating pods have not stopped yet.
    TerminatingGracePeriod = "terminating_grace_period",
    /// Terminating pods have not stopped after their grace period, and no finalizer holds them.
    TerminatingOverdue = "terminating_overdue",
    /// The status differs from the listed objects.
    StatusOutdated = "status_outdated",
    /// A pod holds those that come after it in the order of a StatefulSet; a note.
    OrdinalOrder = "ordinal_order",
    /// A partition keeps pods of a StatefulSet at the old revision; a note.
    Partition = "partition",
    /// Another controller selects or owns the same pods.
    SelectorOverlap = "selector_overlap",
    /// Another client writes `spec.replicas`, such as a HorizontalPodAutoscaler.
    ReplicasOverwritten = "replicas_overwritten",
    /// A PodDisruptionBudget refuses evictions of the pods while the rollout is not complete.
    DisruptionBudget = "disruption_budget",
    /// An event of type Warning that no other cause explains; a note.
    WarningEvent = "warning_event",
    /// No cause was found in the objects that could be read.
    Unknown = "unknown",
}

impl Cause {
    /// Cause that [`cached_cause`](crate::cached_cause) finds for a rollout that this cause holds.
    pub const fn in_caches(self) -> Self {
        match self {
            Self::SchedulingGated | Self::SchedulerNotRunning => Self::Unschedulable,
            // `ProbeFailing` if the containers of a lost node ran.
            Self::VolumeMount | Self::NodeLost | Self::PodSandbox | Self::ImagePulling => Self::PodStarting,
            Self::ReadinessGate => Self::ProbeFailing,
            Self::ProbeKill => Self::CrashLoop,
            Self::CreateBackOff => Self::QuotaExceeded,
            Self::TerminatingFinalizer | Self::TerminatingOverdue => Self::TerminatingGracePeriod,
            Self::EmptySelector
            | Self::ControllerNotRunning
            | Self::ReplicaSetControllerNotRunning
            | Self::ReplicaSetUpdateFailed
            | Self::NamespaceTerminating
            | Self::OnDelete
            | Self::OrdinalOrder
            | Self::Partition
            | Self::DesiredReplicasAnnotation
            | Self::StatusOutdated
            | Self::SelectorOverlap
            | Self::ReplicasOverwritten
            | Self::DisruptionBudget
            | Self::WarningEvent => Self::Unknown,
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
