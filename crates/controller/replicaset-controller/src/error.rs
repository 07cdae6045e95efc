use std::{sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_controller_ref_manager::ClaimErrors;
use kcm_controller_util::{CreateError, ManifestError};
use kcm_expectations::NotReady;
use thiserror::Error;

/// Error of a sync. The sync is retried with back-off.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum SyncError {
    /// A cache does not contain the writes of an earlier sync yet.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Pods could not be adopted or released.
    #[error(transparent)]
    Claim(#[from] ClaimErrors),
    /// The status could not be written. Replaces an error of the pods, as upstream.
    #[error(transparent)]
    Status(#[from] ApiError),
    /// Pods could not be created or deleted.
    #[error("{source}")]
    Manage {
        /// Cause.
        source: ManageError,
        /// Time until the next pod becomes available, which no event reports.
        next_availability: Option<Duration>,
    },
}

/// Error of the creation or deletion of pods. `Display` gives the message of the `ReplicaFailure` condition.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ManageError {
    /// The template cannot be converted to a pod.
    #[error(transparent)]
    Manifest(Arc<ManifestError>),
    /// The creation of a pod failed.
    #[error(transparent)]
    Create(CreateError),
    /// The deletion of a pod failed.
    #[error("unable to delete pods: {0}")]
    Delete(#[source] ApiError),
}
