//! Caches and a fake API server for tests of whole syncs.

use std::sync::Arc;

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet, error::reason};
use kcm_controller_ref_manager::{OwnerIdentity, OwnerPatch};
use kcm_controller_util::{
    DeploymentControl, ReplicaSetControl, deployment_indexers, pod_indexers, replica_set_indexers,
};
use kcm_informer::StoreWriter;
use parking_lot::Mutex;

use super::FakeCluster;
use crate::plan::{Action, ActionResult};

/// Caches that a test fills.
pub(crate) struct Caches {
    pub(crate) deployments: StoreWriter<Deployment>,
    pub(crate) replica_sets: StoreWriter<ReplicaSet>,
    pub(crate) pods: StoreWriter<Pod>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            deployments: StoreWriter::new(deployment_indexers()),
            replica_sets: StoreWriter::new(replica_set_indexers()),
            pods: StoreWriter::new(pod_indexers()),
        }
    }

    pub(crate) fn with(deployments: &[&Deployment], replica_sets: &[&ReplicaSet]) -> Self {
        let mut caches = Self::new();
        for deployment in deployments {
            caches.deployments.apply(Arc::new((*deployment).clone()));
        }
        for set in replica_sets {
            caches.replica_sets.apply(Arc::new((*set).clone()));
        }
        caches
    }
}

/// API server of a [`FakeCluster`] that records requests.
pub(crate) struct FakeApiServer {
    pub(crate) cluster: Mutex<FakeCluster>,
    pub(crate) requests: Mutex<Vec<String>>,
}

impl FakeApiServer {
    pub(crate) fn new(cluster: FakeCluster) -> Self {
        Self { cluster: Mutex::new(cluster), requests: Mutex::new(Vec::new()) }
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    fn perform(&self, action: &Action) -> ActionResult {
        self.requests.lock().push(action.to_string());
        self.cluster.lock().perform(action)
    }

    fn write_set(&self, action: &Action) -> Result<ReplicaSet, ApiError> {
        match self.perform(action) {
            ActionResult::ReplicaSet(set) => Ok((*set).clone()),
            ActionResult::Failed(error) | ActionResult::AlreadyExists { error, .. } => Err(error),
            ActionResult::Deployment(_) | ActionResult::Done => unreachable!(),
        }
    }

    fn write_deployment(&self, action: &Action) -> Result<Deployment, ApiError> {
        match self.perform(action) {
            ActionResult::Deployment(deployment) => Ok((*deployment).clone()),
            ActionResult::Failed(error) => Err(error),
            _ => unreachable!(),
        }
    }
}

#[async_trait]
impl DeploymentControl for FakeApiServer {
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError> {
        self.requests.lock().push(format!("get deployment {}", key.name));
        Ok(self.cluster.lock().deployment.clone())
    }

    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.write_deployment(&Action::UpdateDeployment(Arc::new(deployment.clone())))
    }

    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.write_deployment(&Action::UpdateDeploymentStatus(Arc::new(deployment.clone())))
    }
}

#[async_trait]
impl ReplicaSetControl for FakeApiServer {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.requests.lock().push(format!("get replica set {}", key.name));
        let stored = self.cluster.lock().sets.get(&*key.name).cloned();
        stored.ok_or_else(|| ApiError::status(404, reason::NOT_FOUND, "not found"))
    }

    async fn create_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.write_set(&Action::CreateReplicaSet(Arc::new(set.clone())))
    }

    async fn update_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.write_set(&Action::UpdateReplicaSet(Arc::new(set.clone())))
    }

    async fn update_replica_set_status(&self, _set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        unreachable!("the deployment controller does not write the status of a ReplicaSet")
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.requests.lock().push(format!("delete replica set {}", key.name));
        self.cluster.lock().sets.remove(&*key.name);
        Ok(())
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        let operation = if patch.is_adoption() { "adopt" } else { "release" };
        self.requests.lock().push(format!("{operation} replica set {}", key.name));
        let mut cluster = self.cluster.lock();
        let version = cluster.next_version();
        let owner = OwnerIdentity::from(&cluster.deployment).controller_reference();
        let Some(set) = cluster.sets.get_mut(&*key.name) else {
            return Err(ApiError::status(404, reason::NOT_FOUND, "not found"));
        };
        set.metadata.owner_references = if operation == "adopt" { vec![owner] } else { Vec::new() };
        set.metadata.resource_version = version;
        Ok(set.clone())
    }
}
