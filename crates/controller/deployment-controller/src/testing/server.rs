//! What a sync talks to, for tests: caches, and a server behind the traits.

use std::sync::Arc;

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet, error::reason};
use kcm_controller_ref_manager::{OwnerIdentity, OwnerPatch};
use kcm_controller_util::{
    DeploymentControl, ReplicaSetControl, deployment_indexers, pod_indexers, replica_set_indexers,
};
use kcm_informer::StoreWriter;
use parking_lot::Mutex;

use super::World;
use crate::{Action, Answer};

/// Caches that a test fills by hand, and the handlers over them.
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

/// A server that answers as [`World`] does, and writes down what it is asked.
pub(crate) struct Server {
    pub(crate) world: Mutex<World>,
    pub(crate) requests: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) fn new(world: World) -> Self {
        Self { world: Mutex::new(world), requests: Mutex::new(Vec::new()) }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    fn ask(&self, action: &Action) -> Answer {
        self.requests.lock().push(action.to_string());
        self.world.lock().answer(action)
    }

    fn ask_set(&self, action: &Action) -> Result<ReplicaSet, ApiError> {
        match self.ask(action) {
            Answer::ReplicaSet(set) => Ok((*set).clone()),
            Answer::Failed(error) | Answer::NameTaken { error, .. } => Err(error),
            Answer::Deployment(_) | Answer::Done => unreachable!(),
        }
    }

    fn ask_deployment(&self, action: &Action) -> Result<Deployment, ApiError> {
        match self.ask(action) {
            Answer::Deployment(deployment) => Ok((*deployment).clone()),
            Answer::Failed(error) => Err(error),
            _ => unreachable!(),
        }
    }
}

#[async_trait]
impl DeploymentControl for Server {
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError> {
        self.requests.lock().push(format!("get deployment {}", key.name));
        Ok(self.world.lock().deployment.clone())
    }

    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.ask_deployment(&Action::UpdateDeployment(Arc::new(deployment.clone())))
    }

    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.ask_deployment(&Action::UpdateDeploymentStatus(Arc::new(deployment.clone())))
    }
}

#[async_trait]
impl ReplicaSetControl for Server {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.requests.lock().push(format!("get replica set {}", key.name));
        let stored = self.world.lock().sets.get(&*key.name).cloned();
        stored.ok_or_else(|| ApiError::status(404, reason::NOT_FOUND, "not found"))
    }

    async fn create_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.ask_set(&Action::CreateReplicaSet(Arc::new(set.clone())))
    }

    async fn update_replica_set(&self, set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.ask_set(&Action::UpdateReplicaSet(Arc::new(set.clone())))
    }

    async fn update_replica_set_status(&self, _set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        unreachable!("a replica set's status is not the deployment controller's")
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.requests.lock().push(format!("delete replica set {}", key.name));
        self.world.lock().sets.remove(&*key.name);
        Ok(())
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        let what = if patch.as_json().contains("$patch") { "release" } else { "adopt" };
        self.requests.lock().push(format!("{what} replica set {}", key.name));
        let mut world = self.world.lock();
        let version = world.next_version();
        let owner = OwnerIdentity::from(&world.deployment).controller_reference();
        let Some(set) = world.sets.get_mut(&*key.name) else {
            return Err(ApiError::status(404, reason::NOT_FOUND, "not found"));
        };
        set.metadata.owner_references = if what == "adopt" { vec![owner] } else { Vec::new() };
        set.metadata.resource_version = version;
        Ok(set.clone())
    }
}
