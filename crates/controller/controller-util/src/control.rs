//! Requests of controllers to the API server, as traits.
//!
//! A transport implements them; tests use fakes. There is one trait per kind, with one method per verb that upstream's
//! roles allow. Events are sent by a recorder.

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_controller_ref_manager::OwnerPatch;

use crate::PodManifest;

/// Requests for pods.
///
/// Upstream counterpart: `controller.PodControlInterface`, without events.
#[async_trait]
pub trait PodControl: Send + Sync + 'static {
    /// Creates the pod `key` from `manifest`. Returns the created pod, of which only the metadata is complete.
    ///
    /// The request can be repeated: if the pod exists, the API server returns `AlreadyExists`. After any other error the
    /// pod may exist or be created later, because an earlier request for the same name may have taken effect.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError>;

    /// Reads a pod from the API server, without a cache. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError>;

    /// Deletes a pod without preconditions and with the grace period of the pod (US-3.3).
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError>;

    /// Patches the owner references of a pod. Returns the patched pod.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn patch_pod(&self, pod: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError>;
}

/// Requests for ReplicaSets.
///
/// Upstream counterpart: `controller.RSControlInterface` and the clientset.
#[async_trait]
pub trait ReplicaSetControl: Send + Sync + 'static {
    /// Reads a ReplicaSet from the API server, without a cache.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError>;

    /// Creates a ReplicaSet. Returns the stored object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Replaces a ReplicaSet whose resource version has not changed. Returns the stored object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Replaces the status of a ReplicaSet whose resource version has not changed. Returns the stored object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError>;

    /// Deletes a ReplicaSet with the default propagation policy of the kind.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError>;

    /// Patches the owner references of a ReplicaSet. Returns the patched object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError>;
}

/// Requests for Deployments.
#[async_trait]
pub trait DeploymentControl: Send + Sync + 'static {
    /// Reads a Deployment from the API server, without a cache.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError>;

    /// Replaces a Deployment whose resource version has not changed. Returns the stored object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError>;

    /// Replaces the status and the annotations of a Deployment whose resource version has not changed (US-4.8). Returns the
    /// stored object.
    ///
    /// # Errors
    ///
    /// If the request fails.
    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError>;
}
