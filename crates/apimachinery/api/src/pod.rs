//! Pods, as far as decisions look at them.

mod decode;
mod wire;

use std::sync::Arc;

use thiserror::Error;

pub use self::decode::PodDecoder;
use crate::{ControllerRef, Labels, ObjectKey, Time};

#[cfg(test)]
mod tests;

/// A pod, lean: only what the controllers read. It cannot be written back, and is not meant to be.
///
/// What many pods have in common (namespace, node, labels, owner) is shared between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The UID.
    pub uid: Arc<str>,
    /// The version of the object that this is; opaque.
    pub resource_version: Box<str>,
    /// What the pod is chosen by.
    pub labels: Arc<Labels>,
    /// Who manages the pod.
    pub controller: Option<Arc<ControllerRef>>,
    /// When the pod was stored first.
    pub creation_timestamp: Option<Time>,
    /// When the pod is to be gone; set once somebody asked for that.
    pub deletion_timestamp: Option<Time>,
    /// The node that the pod is bound to.
    pub node_name: Option<Arc<str>>,
    /// How far the pod is.
    pub phase: Phase,
    /// The first condition of type `Ready`.
    pub ready: Ready,
    /// The value of `controller.kubernetes.io/pod-deletion-cost`, zero where there is no valid one (US-5.6).
    pub deletion_cost: i32,
    /// The most restarts of any container.
    pub max_restarts: i32,
    /// The most restarts of any init container that restarts always.
    pub max_sidecar_restarts: i32,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers run yet.
    #[default]
    Pending,
    /// Bound to a node, and running or about to restart.
    Running,
    /// All containers have ended well, and will not restart.
    Succeeded,
    /// All containers have ended, at least one of them badly, and will not restart.
    Failed,
    /// The node cannot be reached.
    Unknown,
    /// Something that the API does not name. Ranked like `Pending` (US-5.6).
    Other,
}

/// The first condition of type `Ready`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether its status is `True`.
    pub is_ready: bool,
    /// Since when it has been what it is.
    pub since: Option<Time>,
}

/// A pod on the wire that is none.
#[derive(Debug, Error)]
#[error("cannot decode pod {name:?}: {source}")]
pub struct PodDecodeError {
    /// Namespace and name as far as they could be read.
    pub name: String,
    /// What was wrong.
    #[source]
    pub source: serde_json::Error,
}

impl Pod {
    /// Neither finished nor on its way out (US-3.6).
    pub fn is_active(&self) -> bool {
        !self.is_finished() && self.deletion_timestamp.is_none()
    }

    /// On its way out, and not finished (US-3.6).
    pub fn is_terminating(&self) -> bool {
        !self.is_finished() && self.deletion_timestamp.is_some()
    }

    /// Ended for good.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}
