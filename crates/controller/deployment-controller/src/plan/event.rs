//! Events about a Deployment. The texts are upstream's.

use std::{fmt, sync::Arc};

use kcm_deployment_util::conditions::reason::FAILED_REPLICA_SET_CREATE;
use kcm_events::EventType;

/// Event about a Deployment. `Display` returns its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The selector is empty.
    SelectingAll,
    /// A ReplicaSet was scaled.
    ScaledReplicaSet {
        /// Name of the ReplicaSet.
        replica_set: Arc<str>,
        /// Previous size.
        from: i32,
        /// New size.
        to: i32,
    },
    /// The new ReplicaSet could not be created.
    FailedReplicaSetCreate {
        /// Name of the ReplicaSet.
        replica_set: Arc<str>,
        /// Error of the API server or of the connection.
        error: String,
    },
    /// The previous revision is requested, and there is none.
    LastRevisionNotFound,
    /// No ReplicaSet has the requested revision.
    RevisionNotFound,
    /// The requested revision has the template of the Deployment.
    TemplateUnchanged {
        /// Name of the Deployment.
        deployment: Arc<str>,
    },
    /// The template of a revision was restored.
    RolledBack {
        /// Name of the Deployment.
        deployment: Arc<str>,
        /// Revision.
        revision: i64,
    },
}

impl Event {
    /// Type of the event.
    pub fn type_(&self) -> EventType {
        match self {
            Self::ScaledReplicaSet { .. } | Self::RolledBack { .. } => EventType::Normal,
            Self::SelectingAll
            | Self::FailedReplicaSetCreate { .. }
            | Self::LastRevisionNotFound
            | Self::RevisionNotFound
            | Self::TemplateUnchanged { .. } => EventType::Warning,
        }
    }

    /// Reason of the event, in upstream's CamelCase.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::SelectingAll => "SelectingAll",
            Self::ScaledReplicaSet { .. } => "ScalingReplicaSet",
            Self::FailedReplicaSetCreate { .. } => FAILED_REPLICA_SET_CREATE,
            Self::LastRevisionNotFound | Self::RevisionNotFound => "DeploymentRollbackRevisionNotFound",
            Self::TemplateUnchanged { .. } => "DeploymentRollbackTemplateUnchanged",
            Self::RolledBack { .. } => "DeploymentRollback",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelectingAll => {
                f.write_str("This deployment is selecting all pods. A non-empty selector is required.")
            }
            Self::ScaledReplicaSet { replica_set, from, to } => {
                let direction = if from < to { "up" } else { "down" };
                write!(f, "Scaled {direction} replica set {replica_set} from {from} to {to}")
            }
            Self::FailedReplicaSetCreate { replica_set, error } => {
                write!(f, "Failed to create new replica set \"{replica_set}\": {error}")
            }
            Self::LastRevisionNotFound => f.write_str("Unable to find last revision."),
            Self::RevisionNotFound => f.write_str("Unable to find the revision to rollback to."),
            Self::TemplateUnchanged { deployment } => write!(
                f,
                "The rollback revision contains the same template as current deployment \"{deployment}\""
            ),
            Self::RolledBack { deployment, revision } => {
                write!(f, "Rolled back deployment \"{deployment}\" to revision {revision}")
            }
        }
    }
}
