//! What controllers do to the cluster, as traits: a transport implements them, a test imitates them.
//!
//! One trait per kind, one method per verb that upstream's roles allow. Events are not here; they go through
//! a recorder.

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_controller_ref_manager::OwnerPatch;

use crate::PodManifest;

/// Writes to pods, and a read past the cache.
///
/// Upstream counterpart: `controller.PodControlInterface`, less the events.
#[async_trait]
pub trait PodControl: Send + Sync + 'static {
    /// Creates the pod `key` from `manifest`.
    ///
    /// The request can be sent again: if the pod exists, the API server refuses it with `AlreadyExists`. After any
    /// other error the pod may exist, or may be created later: an earlier request for the same name, or an attempt
    /// that the transport repeated, may have taken effect.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError>;

    /// Reads the newest state of a pod, past all caches. `None` if there is none.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError>;

    /// Asks for a pod to go, with no precondition and its own grace period (US-3.3).
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError>;

    /// Changes the owners of a pod; answers with the pod as it is now.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn patch_pod(&self, pod: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError>;
}

/// Reads past the cache, and writes, of ReplicaSets.
///
/// Upstream counterpart: `controller.RSControlInterface` and the clientset.
#[async_trait]
pub trait ReplicaSetControl: Send + Sync + 'static {
    /// The newest state of a ReplicaSet.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError>;

    /// Creates a ReplicaSet; answers with it as stored.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Replaces a ReplicaSet if it still has the resource version given in it; answers with it as stored.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Replaces the status of a ReplicaSet, likewise.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Asks for a ReplicaSet to go, with the kind's own propagation.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError>;

    /// Changes the owners of a ReplicaSet; answers with it as it is now.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError>;
}

/// Reads past the cache, and writes, of Deployments.
#[async_trait]
pub trait DeploymentControl: Send + Sync + 'static {
    /// The newest state of a Deployment.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError>;

    /// Replaces a Deployment if it still has the resource version given in it; answers with it as stored.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError>;

    /// Replaces the status of a Deployment, likewise. Annotations travel with it (US-4.8).
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError>;
}
