//! What ends a sync early.

use std::sync::Arc;

use kcm_api::{ApiError, ObjectKey, SelectorError, hash::HashError};
use kcm_controller_ref_manager::ClaimErrors;
use kcm_deployment_util::fenceposts::StrategyError;
use thiserror::Error;

/// Error of a sync of a Deployment. The controller retries the sync with back-off.
#[derive(Debug, Clone, Error)]
pub enum SyncError {
    /// The selector cannot be parsed.
    #[error("deployment {deployment} has invalid label selector: {source}")]
    Selector {
        /// The Deployment.
        deployment: ObjectKey,
        /// What is wrong with it.
        source: SelectorError,
    },
    /// ReplicaSets could not be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimErrors),
    /// A write failed.
    #[error("cannot {what} {object}: {source}")]
    Write {
        /// What was tried: `create replica set` and the like.
        what: &'static str,
        /// With which object.
        object: ObjectKey,
        /// What the server or the transport said.
        source: ApiError,
    },
    /// A ReplicaSet's name exists, and neither the cache nor the API server returns the ReplicaSet.
    #[error("replica set {replica_set} exists already but cannot be read: {source}")]
    HolderUnknown {
        /// The name.
        replica_set: ObjectKey,
        /// What the server said.
        source: ApiError,
    },
    /// The strategy is one that nobody knows.
    #[error("unexpected deployment strategy type: {0}")]
    UnexpectedStrategy(String),
    /// The strategy's numbers cannot be used.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The template cannot be hashed, so there is no name for its ReplicaSet.
    #[error("deployment {deployment}: {source}")]
    Hash {
        /// The Deployment.
        deployment: ObjectKey,
        /// What is wrong with its template.
        source: HashError,
    },
    /// The template is of no shape that a label could be put on.
    #[error("{object}: cannot change the labels of its template: {source}")]
    Template {
        /// Whose template.
        object: ObjectKey,
        /// What is wrong with it.
        source: Arc<serde_json::Error>,
    },
    /// More pods of an old ReplicaSet are available than it is to have.
    #[error(
        "when cleaning up unhealthy replicas, got invalid request to scale down {replica_set} {from} -> {to}"
    )]
    InvalidScaleDown {
        /// The ReplicaSet.
        replica_set: ObjectKey,
        /// Its size.
        from: i32,
        /// The size that would follow.
        to: i32,
    },
    /// The answers given to [`plan`](crate::plan) are not those to its own actions.
    #[error("answer {0} does not fit the action that it is to answer")]
    AnswerMisfit(usize),
}

impl SyncError {
    /// Whether the namespace is going away, and the Deployment with it: no use in trying again.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Self::Write { source, .. } | Self::HolderUnknown { source, .. } => {
                source.is_namespace_terminating()
            }
            _ => false,
        }
    }
}
