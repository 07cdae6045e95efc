//! What controllers do to the cluster, as traits: a transport implements them, a test imitates them.
//!
//! One trait per kind, one method per verb that upstream's roles allow. Events are not here; they go through
//! a recorder.

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerPatch;

use crate::PodManifest;

/// Writes to pods, and a read past the cache.
///
/// Upstream counterpart: `controller.PodControlInterface`, less the events.
#[async_trait]
pub trait PodControl: Send + Sync + 'static {
    /// Creates a pod. Never sent twice: an error that [may have taken effect](ApiError::may_have_taken_effect) may mean
    /// that the pod exists, or will. [`list_pods`](Self::list_pods) tells.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn create_pod(&self, namespace: &str, manifest: &PodManifest) -> Result<Pod, ApiError>;

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

    /// The pods in `namespace` that `selector` matches, as they are now: whatever was written before this was asked is
    /// in the answer. For when it is not known what was written.
    ///
    /// # Errors
    ///
    /// What the server or the transport says.
    async fn list_pods(&self, namespace: &str, selector: &Selector) -> Result<Vec<Pod>, ApiError>;
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
