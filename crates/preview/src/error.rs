use kcm_apiserver::ApiStatus;
use thiserror::Error;

/// Reason why a change cannot be previewed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PreviewError {
    /// The Deployment does not exist.
    #[error("deployments.apps \"{name}\" not found in namespace {namespace}")]
    NotFound {
        /// Namespace.
        namespace: String,
        /// Name of the Deployment.
        name: String,
    },
    /// The manifest is of another object.
    #[error("manifest is of {found}, expected {expected}")]
    OtherObject {
        /// Object of the manifest.
        found: String,
        /// Deployment of the preview.
        expected: String,
    },
    /// The container is not named, or does not exist.
    #[error("invalid container \"{container}\": must be one of the Deployment's containers: {containers}")]
    Container {
        /// Given name.
        container: String,
        /// Names of the Deployment's containers.
        containers: String,
    },
    /// There is no ReplicaSet of the revision.
    #[error("{}", match revision {
        Some(revision) => format!("revision {revision} is not in the history of the Deployment"),
        None => "the Deployment has no earlier revision".to_owned(),
    })]
    Revision {
        /// Given revision.
        revision: Option<i64>,
    },
    /// The API server rejects the change.
    #[error("the API server rejects the change: {0}")]
    Rejected(#[source] ApiStatus),
    /// the objects of the cluster cannot be copied into the embedded API server.
    #[error("failed to copy the objects of the cluster: {0}")]
    Import(#[source] ApiStatus),
    /// The runtime of the simulation cannot be built.
    #[error("failed to start the simulation: {0}")]
    Runtime(#[source] std::io::Error),
    /// The simulation panicked.
    #[error("the simulation panicked")]
    Panicked,
}
