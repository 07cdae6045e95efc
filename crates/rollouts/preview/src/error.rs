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
    /// `kubectl` refuses the change.
    #[error("deployments.apps \"{name}\" {reason}")]
    Refused {
        /// Name of the Deployment.
        name: String,
        /// Message of `kubectl`.
        reason: &'static str,
    },
    /// `kubectl rollout undo` refuses a paused Deployment.
    #[error(
        "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume deployment/{name}' and try \
         again"
    )]
    UndoPaused {
        /// Name of the Deployment.
        name: String,
    },
    /// The changes cannot be made in one request.
    #[error("only images and the number of replicas can be changed in one request")]
    NotCombinable,
    /// An image of all containers, and another one.
    #[error(
        "all containers are already specified by *, but saw more than one container_name=container_image pairs"
    )]
    AllContainers,
    /// The manifest has another API version, as `kubectl apply` reports.
    #[error("no matches for kind \"Deployment\" in version {version:?}")]
    Version {
        /// `apiVersion` of the manifest.
        version: String,
    },
    /// The manifest has fields that Deployments do not have, as `kubectl apply` reports.
    #[error("{0}")]
    UnknownFields(String),
    /// The change concerns more pods than the preview simulates.
    #[error(
        "the change concerns {pods} pods, old and new together; the preview simulates at most {limit} \
         (bounds of the rollout: at most {max_pods} pods, at least {min_available} available)"
    )]
    TooLarge {
        /// Existing pods and those that the change creates.
        pods: u64,
        /// Maximum.
        limit: u64,
        /// Maximum number of pods of the rollout, without terminating ones.
        max_pods: i64,
        /// Minimum number of available pods of the rollout.
        min_available: i32,
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
