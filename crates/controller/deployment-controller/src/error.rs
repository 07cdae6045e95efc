//! Errors of a sync.

use std::sync::Arc;

use kcm_api::{ApiError, ObjectKey, SelectorError, hash::HashError};
use kcm_controller_ref_manager::ClaimErrors;
use kcm_deployment_util::fenceposts::StrategyError;
use thiserror::Error;

/// Error of a sync of a Deployment. The controller retries the sync with back-off.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The selector is invalid.
    #[error("deployment {deployment} has invalid label selector: {source}")]
    Selector {
        /// Deployment.
        deployment: ObjectKey,
        /// Error of the selector.
        source: SelectorError,
    },
    /// ReplicaSets could not be adopted or released.
    #[error(transparent)]
    Claim(#[from] ClaimErrors),
    /// A write failed.
    #[error("failed to {operation} {object}: {source}")]
    Write {
        /// Operation and kind, such as `create replica set`.
        operation: &'static str,
        /// Object.
        object: ObjectKey,
        /// Error of the API server or of the connection.
        source: ApiError,
    },
    /// The name of the new ReplicaSet exists, and neither the cache nor the API server returned that ReplicaSet.
    #[error("failed to read existing replica set {replica_set}: {source}")]
    ExistingReplicaSetNotRead {
        /// ReplicaSet.
        replica_set: ObjectKey,
        /// Error of the create.
        source: ApiError,
    },
    /// The strategy type is unknown.
    #[error("unexpected deployment strategy type: {0}")]
    UnknownStrategy(String),
    /// The bounds of the rolling update are invalid.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The template cannot be hashed.
    #[error("failed to hash template of deployment {deployment}: {source}")]
    Hash {
        /// Deployment.
        deployment: ObjectKey,
        /// Error of the hash function.
        source: HashError,
    },
    /// The labels of a template cannot be changed because the template has an unexpected structure.
    #[error("failed to set labels in template of {object}: {source}")]
    Template {
        /// Deployment or ReplicaSet with the template.
        object: ObjectKey,
        /// Error of the conversion.
        source: Arc<serde_json::Error>,
    },
    /// More pods of an old ReplicaSet are available than desired.
    #[error(
        "when cleaning up unhealthy replicas, got invalid request to scale down {replica_set} {from} -> {to}"
    )]
    InvalidScaleDown {
        /// ReplicaSet.
        replica_set: ObjectKey,
        /// Present size.
        from: i32,
        /// Computed size.
        to: i32,
    },
    /// A result given to [`plan`](crate::plan()) is not one of the action at its position.
    #[error("result {0} does not match its action")]
    UnexpectedResult(usize),
}

impl SyncError {
    /// Returns the error of the write that failed, if one did.
    pub fn api_error(&self) -> Option<&ApiError> {
        match self {
            Self::Write { source, .. } | Self::ExistingReplicaSetNotRead { source, .. } => Some(source),
            _ => None,
        }
    }
}
