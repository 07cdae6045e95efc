//! Pods, with the fields that the controllers use.

mod decode;
mod protobuf;
mod wire;

use std::sync::Arc;

use thiserror::Error;

pub use self::decode::PodDecoder;
use crate::{Labels, ObjectKey, PodControllerRef, Time};

#[cfg(test)]
mod tests;

/// Pod with the fields that the controllers use. It cannot be written back.
///
/// Namespace, node name, labels and controller reference are shared between pods, see [`PodDecoder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// Opaque version of the stored object.
    pub resource_version: Box<str>,
    /// Labels.
    pub labels: Arc<Labels>,
    /// Controller of the pod.
    pub controller: Option<Arc<PodControllerRef>>,
    /// Time of creation.
    pub creation_timestamp: Option<Time>,
    /// Time after which the pod may be removed. Set when its deletion was requested.
    pub deletion_timestamp: Option<Time>,
    /// Node that the pod is bound to.
    pub node_name: Option<Arc<str>>,
    /// Phase.
    pub phase: Phase,
    /// First condition of type `Ready`.
    pub ready: Ready,
    /// Value of the annotation `controller.kubernetes.io/pod-deletion-cost`. 0 if it is absent or invalid (US-5.6).
    pub deletion_cost: i32,
    /// Maximum restart count of the containers.
    pub max_restarts: i32,
    /// Maximum restart count of the init containers with `restartPolicy: Always`.
    pub max_sidecar_restarts: i32,
    /// First container that waits for a reason that is a failure.
    pub waiting: Waiting,
}

/// Phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, but not all containers have started.
    #[default]
    Pending,
    /// Bound to a node. At least one container is running or restarting.
    Running,
    /// All containers have terminated successfully and will not restart.
    Succeeded,
    /// All containers have terminated, at least one with an error, and will not restart.
    Failed,
    /// The state is unknown, usually because the node cannot be reached.
    Unknown,
    /// A phase that this version does not define. Ranked as `Pending` (US-5.6).
    Other,
}

impl Phase {
    /// Phase with this name. Empty text is [`Pending`](Self::Pending).
    pub fn from_text(text: &str) -> Self {
        match text {
            "Pending" | "" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }
}

/// Annotation with the deletion cost of a pod.
pub const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Parses a deletion cost. Invalid values are 0 (US-5.6).
///
/// As upstream, a plus sign and leading zeros are invalid. After a minus sign, leading zeros are valid: `-007` is -7.
pub fn deletion_cost(text: &str) -> i32 {
    let begins_well = matches!(text.as_bytes(), [b'-' | b'1'..=b'9', ..] | [b'0']);
    if begins_well { text.parse().unwrap_or(0) } else { 0 }
}

/// Failure for which a container waits, from `state.waiting.reason` of its status.
///
/// The controllers do not use it. Metrics of stuck rollouts do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Waiting {
    /// No container waits, or it waits for another reason, such as `ContainerCreating`.
    #[default]
    NoFailure,
    /// The image cannot be pulled, such as `ImagePullBackOff`.
    ImagePull,
    /// The container cannot be created or started, such as `CreateContainerConfigError`.
    ContainerConfig,
    /// The container crashes repeatedly: `CrashLoopBackOff`.
    CrashLoop,
    /// An init container crashes repeatedly.
    InitCrashLoop,
}

impl Waiting {
    /// Failure with this reason of the kubelet.
    pub fn from_reason(reason: &str) -> Self {
        match reason {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => Self::ImagePull,
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "PreStartHookError"
            | "PostStartHookError" => Self::ContainerConfig,
            "CrashLoopBackOff" => Self::CrashLoop,
            _ => Self::NoFailure,
        }
    }
}

/// Condition of type `Ready`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready {
    /// `true` if the status of the condition is `True`.
    pub is_ready: bool,
    /// Time of the last transition of the condition.
    pub since: Option<Time>,
}

/// Pod that cannot be decoded.
#[derive(Debug, Error)]
#[error("cannot decode pod {name:?}: {source}")]
pub struct PodDecodeError {
    /// Namespace and name, as far as they could be read.
    pub name: String,
    /// Cause.
    #[source]
    pub source: serde_json::Error,
}

impl Pod {
    /// `true` if the pod is neither finished nor being deleted (US-3.6).
    pub fn is_active(&self) -> bool {
        !self.is_finished() && self.deletion_timestamp.is_none()
    }

    /// `true` if the pod is being deleted and not finished (US-3.6).
    pub fn is_terminating(&self) -> bool {
        !self.is_finished() && self.deletion_timestamp.is_some()
    }

    /// `true` if the phase is `Succeeded` or `Failed`.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}
