//! Actions of a plan and their results.

use std::{fmt, sync::Arc};

use kcm_api::{ApiError, Deployment, ReplicaSet};

use super::{event::Event, reason::Reason};

/// Action of a [`Plan`](super::Plan) with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedAction {
    /// Action.
    pub action: Action,
    /// Reason of a write. `None` for an event.
    pub reason: Option<Reason>,
}

/// Write to the cluster or event.
///
/// Objects are complete and carry the resource version that they were planned from.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates a ReplicaSet. If the name exists, or may exist, the result is [`ActionResult::AlreadyExists`].
    CreateReplicaSet(Arc<ReplicaSet>),
    /// Updates a ReplicaSet.
    UpdateReplicaSet(Arc<ReplicaSet>),
    /// Deletes a ReplicaSet.
    DeleteReplicaSet(Arc<ReplicaSet>),
    /// Updates a Deployment.
    UpdateDeployment(Arc<Deployment>),
    /// Updates the status and the annotations of a Deployment.
    UpdateDeploymentStatus(Arc<Deployment>),
    /// Records an event.
    RecordEvent {
        /// Deployment that the event is about.
        regarding: Arc<Deployment>,
        /// Event.
        event: Event,
    },
}

/// Result of an [`Action`].
#[derive(Debug, Clone)]
pub enum ActionResult {
    /// A ReplicaSet was created or updated. Contains the object returned by the API server.
    ReplicaSet(Arc<ReplicaSet>),
    /// A Deployment was updated. Contains the object returned by the API server.
    Deployment(Arc<Deployment>),
    /// A ReplicaSet was deleted, or an event was recorded.
    Done,
    /// A ReplicaSet was not created because its name exists, or the result of the create is unknown and the name exists.
    AlreadyExists {
        /// Error of the create: `AlreadyExists`, or an error after which the create may have been executed.
        error: ApiError,
        /// ReplicaSet with that name. `None` if neither the cache nor the API server returned it.
        existing: Option<Arc<ReplicaSet>>,
    },
    /// The action failed with another error.
    Failed(ApiError),
}

impl ActionResult {
    /// Returns `true` if the action failed. The sync must be planned again with this result.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::AlreadyExists { .. } | Self::Failed(_))
    }
}

impl Action {
    /// Returns `true` if the action updates the status of the Deployment.
    pub fn is_status_update(&self) -> bool {
        matches!(self, Self::UpdateDeploymentStatus(_))
    }

    /// Returns the result if the API server stores the object as sent.
    pub fn result_as_sent(&self) -> ActionResult {
        match self {
            Self::CreateReplicaSet(set) | Self::UpdateReplicaSet(set) => {
                ActionResult::ReplicaSet(Arc::clone(set))
            }
            Self::UpdateDeployment(deployment) | Self::UpdateDeploymentStatus(deployment) => {
                ActionResult::Deployment(Arc::clone(deployment))
            }
            Self::DeleteReplicaSet(_) | Self::RecordEvent { .. } => ActionResult::Done,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateReplicaSet(set) => {
                write!(f, "create replica set {} with {} replicas", set.metadata.name, set.replicas())
            }
            Self::UpdateReplicaSet(set) => {
                write!(f, "update replica set {} to {} replicas", set.metadata.name, set.replicas())
            }
            Self::DeleteReplicaSet(set) => write!(f, "delete replica set {}", set.metadata.name),
            Self::UpdateDeployment(deployment) => write!(f, "update deployment {}", deployment.metadata.name),
            Self::UpdateDeploymentStatus(deployment) => {
                write!(f, "update status of deployment {}", deployment.metadata.name)
            }
            Self::RecordEvent { event, .. } => {
                write!(f, "event {} {}: {event}", event.type_().as_str(), event.reason())
            }
        }
    }
}

impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{}: {reason}", self.action),
            None => write!(f, "{}", self.action),
        }
    }
}
