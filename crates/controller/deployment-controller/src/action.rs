//! What a sync can do, and what it can hear back.

use std::{fmt, sync::Arc};

use kcm_api::{ApiError, Deployment, ReplicaSet};
use kcm_events::EventType;

/// One step of a [`Plan`](crate::Plan), and why it is taken.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedAction {
    /// What to do.
    pub action: Action,
    /// Why, in words.
    pub reason: String,
}

/// Something to do to the cluster.
///
/// Objects are as they are to be sent: whole, with the resource version that they were decided on.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// POST of a ReplicaSet. If the name exists, or may exist, the result is [`Answer::NameTaken`].
    CreateReplicaSet(Arc<ReplicaSet>),
    /// PUT of a ReplicaSet.
    UpdateReplicaSet(Arc<ReplicaSet>),
    /// DELETE of a ReplicaSet.
    DeleteReplicaSet(Arc<ReplicaSet>),
    /// PUT of a Deployment.
    UpdateDeployment(Arc<Deployment>),
    /// PUT of a Deployment's status, with which annotations travel.
    UpdateDeploymentStatus(Arc<Deployment>),
    /// An event about the Deployment.
    Event(Event),
}

/// What an event about a Deployment says.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The Deployment.
    pub regarding: Arc<Deployment>,
    /// Whether it is good news.
    pub type_: EventType,
    /// Why, for machines.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// What came of an [`Action`].
#[derive(Debug, Clone)]
pub enum Answer {
    /// A ReplicaSet was created or updated; this is how the server has it now.
    ReplicaSet(Arc<ReplicaSet>),
    /// A Deployment was updated; this is how the server has it now.
    Deployment(Arc<Deployment>),
    /// A ReplicaSet was deleted, or an event was handed over.
    Done,
    /// A ReplicaSet could not be created because its name exists, or the create was not answered and the name exists.
    NameTaken {
        /// Error of the create: `AlreadyExists`, or one that leaves open whether the create was executed.
        error: ApiError,
        /// ReplicaSet with that name. `None` if the cache does not contain it and the API server does not return it.
        holder: Option<Arc<ReplicaSet>>,
    },
    /// It failed in another way.
    Failed(ApiError),
}

impl Answer {
    /// Whether it is bad news, so that what was planned to follow has to be thought over.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::NameTaken { .. } | Self::Failed(_))
    }
}

impl Action {
    /// The answer of a server that does as told and changes nothing on its own.
    pub fn as_sent(&self) -> Answer {
        match self {
            Self::CreateReplicaSet(set) | Self::UpdateReplicaSet(set) => Answer::ReplicaSet(Arc::clone(set)),
            Self::UpdateDeployment(deployment) | Self::UpdateDeploymentStatus(deployment) => {
                Answer::Deployment(Arc::clone(deployment))
            }
            Self::DeleteReplicaSet(_) | Self::Event(_) => Answer::Done,
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
            Self::Event(event) => {
                write!(f, "event {} {}: {}", event.type_.as_str(), event.reason, event.message)
            }
        }
    }
}

impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} — {}", self.action, self.reason)
    }
}
