//! ReplicationControllers, for what is written for ReplicaSets.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use kcm_api::{ApiError, ObjectKey, ReplicaSet, ReplicationController};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::ReplicaSetControl;
use kcm_informer::{List, ListOptions, ListWatch, WatchOptions, WatchStream};

use crate::{ApiClient, control::typed_json};

/// A client to whom every ReplicationController is a ReplicaSet.
///
/// With it in place of an [`ApiClient`], and a descriptor of the other kind, the ReplicaSet controller looks after
/// ReplicationControllers. What an object loses and gains on the way is `kcm_api`'s to say: nothing.
///
/// Upstream counterpart: `informerAdapter` and `clientsetAdapter` in `pkg/controller/replication`. Theirs converts
/// each time an object is looked at; here the cache holds what a sync works on.
#[derive(Debug, Clone)]
pub struct ReplicationControllers(ApiClient);

impl ReplicationControllers {
    /// Those that `client` leads to, at the expense of its rate limit.
    pub fn new(client: ApiClient) -> Self {
        Self(client)
    }

    /// The source of all of them.
    pub fn list_watch(&self) -> Arc<dyn ListWatch<ReplicaSet>> {
        Arc::new(AsReplicaSets(self.0.list_watch()))
    }

    fn json(replica_set: &ReplicaSet) -> Result<Bytes, ApiError> {
        let controller = ReplicationController::try_from(replica_set.clone()).map_err(|error| {
            let key = replica_set.metadata.key();
            ApiError::Decode(format!("cannot encode ReplicationController {key}: {error}"))
        })?;
        typed_json(&controller, true)
    }

    async fn replace(
        &self,
        replica_set: &ReplicaSet,
        subresource: Option<&str>,
    ) -> Result<ReplicaSet, ApiError> {
        let (key, body) = (replica_set.metadata.key(), Self::json(replica_set)?);
        self.0.replace::<ReplicationController>(&key, subresource, body).await.map(Into::into)
    }
}

#[async_trait]
impl ReplicaSetControl for ReplicationControllers {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.0.get::<ReplicationController>(key).await.map(Into::into)
    }

    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        let (namespace, body) = (&replica_set.metadata.namespace, Self::json(replica_set)?);
        self.0.create::<ReplicationController>(namespace, body).await.map(Into::into)
    }

    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replace(replica_set, None).await
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replace(replica_set, Some("status")).await
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.0.delete::<ReplicationController>(key).await
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        self.0.patch::<ReplicationController>(key, patch.as_json()).await.map(Into::into)
    }
}

struct AsReplicaSets(Arc<dyn ListWatch<ReplicationController>>);

#[async_trait]
impl ListWatch<ReplicaSet> for AsReplicaSets {
    async fn list(&self, options: &ListOptions) -> Result<List<ReplicaSet>, ApiError> {
        Ok(self.0.list(options).await?.map(ReplicaSet::from))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<ReplicaSet>, ApiError> {
        let events = self.0.watch(options).await?;
        Ok(events.map(|event| event.map(|event| event.map(ReplicaSet::from))).boxed())
    }
}
