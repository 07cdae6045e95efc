//! ReplicationControllers, presented as ReplicaSets.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use kcm_api::{ApiError, ErrorCause, ObjectKey, ReplicaSet, ReplicationController};
use kcm_client::{Api, ApiClient, DeleteOptions, ListParams, Patch};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::ReplicaSetControl;
use kcm_informer::{
    ListOptions, ListSink, ListWatch, ListWatchError, Undecodable, WatchOptions, WatchStream,
};

use super::RateLimitTurns;

/// Client that presents every ReplicationController as a ReplicaSet. With it, the ReplicaSet controller manages
/// ReplicationControllers. The conversion loses no field.
///
/// Upstream counterpart: `informerAdapter` and `clientsetAdapter` in `pkg/controller/replication`. They convert an
/// object each time that it is read; here the cache contains the converted objects.
#[derive(Debug, Clone)]
pub struct ReplicationControllerClient {
    api: Api<ReplicationController>,
    turns: RateLimitTurns,
}

impl ReplicationControllerClient {
    /// Creates a client that sends requests through `client` and shares its rate limit.
    pub fn new(client: &ApiClient) -> Self {
        Self { api: client.api(), turns: RateLimitTurns::new(client) }
    }

    /// Returns the turns of the status writes of this client.
    pub fn status_turns(&self) -> RateLimitTurns {
        self.turns.clone()
    }

    /// Returns a source of all ReplicationControllers, for an informer.
    pub fn list_watch(&self) -> Arc<dyn ListWatch<ReplicaSet>> {
        Arc::new(AsReplicaSets(self.api.list_watch(ListParams::default())))
    }
}

fn convert(replica_set: &ReplicaSet) -> Result<ReplicationController, ApiError> {
    ReplicationController::try_from(replica_set.clone()).map_err(|error| {
        let key = replica_set.metadata.key();
        let text = format!("failed to encode ReplicationController {key}: {error}");
        ApiError::Decode(ErrorCause::new(text, error))
    })
}

#[async_trait]
impl ReplicaSetControl for ReplicationControllerClient {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.api.get(key).await.map(Into::into)
    }

    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.api.create(&convert(replica_set)?).await.map(Into::into)
    }

    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.api.replace(&convert(replica_set)?).await.map(Into::into)
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        let api = self.turns.permitted(&self.api, &replica_set.metadata.key());
        api.replace_status(&convert(replica_set)?).await.map(Into::into)
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.api.delete(key, &DeleteOptions::default()).await
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        self.api.patch(key, &Patch::strategic(patch.strategic_merge())).await.map(Into::into)
    }
}

struct AsReplicaSets(Arc<dyn ListWatch<ReplicationController>>);

#[async_trait]
impl ListWatch<ReplicaSet> for AsReplicaSets {
    async fn list_into(
        &self,
        options: &ListOptions,
        sink: &mut dyn ListSink<ReplicaSet>,
    ) -> Result<String, ListWatchError> {
        self.0.list_into(options, &mut Converted(sink)).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<ReplicaSet>, ListWatchError> {
        let events = self.0.watch(options).await?;
        Ok(events.map(|event| event.map(|event| event.map(ReplicaSet::from))).boxed())
    }
}

/// Adds ReplicationControllers to a list of ReplicaSets.
struct Converted<'a>(&'a mut dyn ListSink<ReplicaSet>);

impl ListSink<ReplicationController> for Converted<'_> {
    fn add(&mut self, object: ReplicationController) {
        self.0.add(object.into());
    }

    fn add_undecodable(&mut self, object: Undecodable) {
        self.0.add_undecodable(object);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use kcm_informer::WatchEvent;
    use kcm_testkit::RecordedRequest;
    use serde_json::{Value, json};

    use super::*;
    use crate::adapters::testing::{client, scripted};

    fn replication_controller(resource_version: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": resource_version},
            "spec": {"replicas": 2, "selector": {"app": "web"}, "template": {"spec": {"new": [true]}}, "future": 1},
            "status": {"replicas": 1, "newer": {"a": null}},
        })
    }

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "web")
    }

    #[tokio::test(start_paused = true)]
    async fn writes_lose_no_field() {
        let response = replication_controller("8");
        let server = scripted(std::iter::repeat_n(&response, 6));
        let client = ReplicationControllerClient::new(&client(&server));
        let replica_set = client.get_replica_set(&key()).await.unwrap();
        assert_eq!(replica_set.spec.selector.as_ref().unwrap().match_labels["app"], "web");
        let updated = client.update_replica_set_status(&replica_set).await.unwrap();
        assert_eq!(updated, replica_set);
        client.update_replica_set(&replica_set).await.unwrap();
        client.create_replica_set(&replica_set).await.unwrap();
        client.patch_replica_set(&key(), &OwnerPatch::release("o", "u")).await.unwrap();
        client.delete_replica_set(&key()).await.unwrap();

        assert_eq!(
            server.request_lines(),
            [
                "GET /api/v1/namespaces/shop/replicationcontrollers/web",
                "PUT /api/v1/namespaces/shop/replicationcontrollers/web/status",
                "PUT /api/v1/namespaces/shop/replicationcontrollers/web",
                "POST /api/v1/namespaces/shop/replicationcontrollers",
                "PATCH /api/v1/namespaces/shop/replicationcontrollers/web",
                "DELETE /api/v1/namespaces/shop/replicationcontrollers/web",
            ]
        );
        let mut typed = response;
        typed["apiVersion"] = json!("v1");
        typed["kind"] = json!("ReplicationController");
        let bodies: Vec<_> = server.requests().iter().map(RecordedRequest::json).collect();
        assert_eq!(bodies[1..4], [typed.clone(), typed.clone(), typed]);
    }

    #[tokio::test(start_paused = true)]
    async fn field_of_replica_sets_alone_is_an_error() {
        let server = scripted([&replication_controller("8")]);
        let client = ReplicationControllerClient::new(&client(&server));
        let mut replica_set = client.get_replica_set(&key()).await.unwrap();
        replica_set.status.terminating_replicas = Some(1);
        let error = client.update_replica_set_status(&replica_set).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to encode ReplicationController shop/web: the status counts terminating pods"
        );
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_and_watches() {
        let bad = json!({"metadata": {"namespace": "shop", "name": "bad"}, "spec": {"replicas": "many"}});
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": [replication_controller("8"), bad]});
        let event = json!({"type": "ADDED", "object": replication_controller("10")});
        let server = scripted([&list, &event]);
        let source = ReplicationControllerClient::new(&client(&server)).list_watch();
        let list = source.list(&ListOptions::default()).await.unwrap();
        assert_eq!((list.items.len(), list.undecodable.len(), &*list.resource_version), (1, 1, "9"));
        assert_eq!(list.items[0].replicas(), 2);
        assert!(list.undecodable[0].error.starts_with("cannot decode ReplicationController: "));

        let mut events = source.watch(&WatchOptions::default()).await.unwrap();
        let Some(Ok(WatchEvent::Added(added))) = events.next().await else { panic!() };
        assert_eq!(&*added.metadata.resource_version, "10");
        let requests = server.request_lines();
        assert!(requests[0].starts_with("GET /api/v1/replicationcontrollers?limit="), "{requests:?}");
        assert!(requests[1].starts_with("GET /api/v1/replicationcontrollers?watch=true&"), "{requests:?}");
    }
}
