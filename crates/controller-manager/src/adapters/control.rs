//! Pods, ReplicaSets and Deployments.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_client::{Api, ApiClient, ContentType, DeleteOptions, Patch, WriteOptions};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{DeploymentControl, PodControl, PodManifest, ReplicaSetControl};

use super::RateLimitTurns;

/// Client of a controller for pods, ReplicaSets and Deployments.
///
/// Upstream counterpart: `controller.RealPodControl`, `RealRSControl` and the typed clients.
#[derive(Debug, Clone)]
pub struct ClusterClient {
    /// Responds with the metadata of the pods that are written.
    pods: Api<Pod>,
    /// Responds with whole pods.
    adopted_pods: Api<Pod>,
    /// `true` if pods are created in protobuf. Becomes `false` when the API server refuses that.
    protobuf: Arc<AtomicBool>,
    replica_sets: Api<ReplicaSet>,
    deployments: Api<Deployment>,
    turns: RateLimitTurns,
}

impl ClusterClient {
    /// Creates a client that sends requests through `client` and shares its rate limit.
    pub fn new(client: &ApiClient) -> Self {
        // Controllers read only the metadata of the pods that they create.
        let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
        Self {
            pods: client.api().with_write_options(metadata_only),
            adopted_pods: client.api(),
            protobuf: Arc::new(AtomicBool::new(client.content_type() == ContentType::Protobuf)),
            replica_sets: client.api(),
            deployments: client.api(),
            turns: RateLimitTurns::new(client),
        }
    }

    /// Returns the turns of the status writes of this client.
    pub fn status_turns(&self) -> RateLimitTurns {
        self.turns.clone()
    }
}

#[async_trait]
impl PodControl for ClusterClient {
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        let pods = self.pods.namespaced(&key.namespace);
        if self.protobuf.load(Ordering::Relaxed)
            && let Some(body) = manifest.to_protobuf(&key.name)
        {
            match pods.create_protobuf(body).await {
                // The API server has not processed the request, unless an attempt before was lost.
                Err(error) if error.code() == Some(415) => {
                    self.protobuf.store(false, Ordering::Relaxed);
                    if error.may_have_taken_effect() {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
        pods.create_json(manifest.to_json(&key.name)).await
    }

    /// Lists, because upstream's roles allow controllers to list pods, but not to get one.
    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        self.pods.find(key).await
    }

    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        // No precondition, and the default grace period and propagation (US-3.3).
        self.pods.delete(pod, &DeleteOptions::default()).await
    }

    async fn patch_pod(&self, pod: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        // An adopted pod replaces the cached one, so its spec and status are needed, too.
        self.adopted_pods.patch(pod, &Patch::strategic(patch.strategic_merge())).await
    }
}

#[async_trait]
impl ReplicaSetControl for ClusterClient {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.replica_sets.get(key).await
    }

    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replica_sets.create(replica_set).await
    }

    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replica_sets.replace(replica_set).await
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        let replica_sets = self.turns.permitted(&self.replica_sets, &replica_set.metadata.key());
        replica_sets.replace_status(replica_set).await
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.replica_sets.delete(key, &DeleteOptions::default()).await
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        self.replica_sets.patch(key, &Patch::strategic(patch.strategic_merge())).await
    }
}

#[async_trait]
impl DeploymentControl for ClusterClient {
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError> {
        self.deployments.get(key).await
    }

    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.deployments.replace(deployment).await
    }

    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        let deployments = self.turns.permitted(&self.deployments, &deployment.metadata.key());
        deployments.replace_status(deployment).await
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{OwnerReference, PodTemplate};
    use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
    use kcm_testkit::{FakeApiServer, FakeResponse, RecordedRequest};
    use serde_json::{Value, json};

    use super::*;
    use crate::adapters::testing::{client, scripted};

    fn manifest(spec: &Value) -> PodManifest {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        let owner = OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: "web-1".into(),
            uid: "u".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        };
        PodManifest::from_template(&PodTemplate::from_value(&template).unwrap(), &owner).unwrap()
    }

    /// A burst has thousands of these futures.
    #[tokio::test]
    async fn futures_of_pod_writes_are_small() {
        let server = FakeApiServer::scripted([]);
        let control = ClusterClient::new(&client(&server));
        let key = ObjectKey::new("default", "web-1-abcde");
        let manifest = manifest(&json!({}));
        let create = size_of_val(&*control.create_pod(&key, &manifest));
        let delete = size_of_val(&*control.delete_pod(&key));
        assert!((500..2_500).contains(&create), "{create} bytes");
        assert!((500..2_000).contains(&delete), "{delete} bytes");
    }

    /// Creates pods with known fields, with an unknown field, and with known fields again. Returns the media types.
    async fn media_of_creations(
        content_type: ContentType,
        responses: impl IntoIterator<Item = FakeResponse>,
    ) -> Vec<String> {
        let server = FakeApiServer::scripted(responses);
        let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
        let options = ClientOptions { content_type, ..options };
        let factory = ClientFactory::in_process(server.service(), options);
        let client = ClusterClient::new(&factory.client("test", RateLimit::UNLIMITED));
        let key = ObjectKey::new("shop", "web-1-x");
        for spec in [json!({"nodeName": "n"}), json!({"futureField": 1}), json!({"nodeName": "n"})] {
            assert_eq!(client.create_pod(&key, &manifest(&spec)).await.unwrap().key, key);
        }
        let media = |request: &RecordedRequest| request.header("content-type").unwrap().to_owned();
        server.requests().iter().map(media).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_created_in_protobuf_if_it_carries_all_fields() {
        let pod = || FakeResponse::ok(json!({"metadata": {"namespace": "shop", "name": "web-1-x"}}));
        let (protobuf, json) = ("application/vnd.kubernetes.protobuf", "application/json");
        let media = media_of_creations(ContentType::Protobuf, [pod(), pod(), pod()]).await;
        assert_eq!(media, [protobuf, json, protobuf]);
        let media = media_of_creations(ContentType::Json, [pod(), pod(), pod()]).await;
        assert_eq!(media, [json, json, json]);
        // A server without protobuf.
        let refused = FakeResponse::failure(415, "UnsupportedMediaType", "no protobuf");
        let media = media_of_creations(ContentType::Protobuf, [refused, pod(), pod(), pod()]).await;
        assert_eq!(media, [protobuf, json, json, json]);
    }

    #[tokio::test(start_paused = true)]
    async fn sends_requests_of_upstream() {
        let deployment = json!({"metadata": {"namespace": "shop", "name": "web"}});
        let replica_set = json!({"metadata": {"namespace": "shop", "name": "web-1"}});
        let pod = json!({"metadata": {"namespace": "shop", "name": "web-1-x"}});
        let list = json!({"items": [pod]});
        let deployments = std::iter::repeat_n(&deployment, 3);
        let replica_sets = std::iter::repeat_n(&replica_set, 6);
        let server = scripted(deployments.chain(replica_sets).chain([&list, &pod, &pod]));
        let client = ClusterClient::new(&client(&server));

        let key = ObjectKey::new("shop", "web");
        let deployment = client.get_deployment(&key).await.unwrap();
        client.update_deployment(&deployment).await.unwrap();
        client.update_deployment_status(&deployment).await.unwrap();

        let key = ObjectKey::new("shop", "web-1");
        let replica_set = client.get_replica_set(&key).await.unwrap();
        client.create_replica_set(&replica_set).await.unwrap();
        client.update_replica_set(&replica_set).await.unwrap();
        client.update_replica_set_status(&replica_set).await.unwrap();
        client.patch_replica_set(&key, &OwnerPatch::release("o", "u")).await.unwrap();
        client.delete_replica_set(&key).await.unwrap();

        let key = ObjectKey::new("shop", "web-1-x");
        assert_eq!(client.find_pod(&key).await.unwrap().unwrap().key, key);
        client.patch_pod(&key, &OwnerPatch::release("o", "u")).await.unwrap();
        client.delete_pod(&key).await.unwrap();

        assert_eq!(
            server.request_lines(),
            [
                "GET /apis/apps/v1/namespaces/shop/deployments/web",
                "PUT /apis/apps/v1/namespaces/shop/deployments/web",
                "PUT /apis/apps/v1/namespaces/shop/deployments/web/status",
                "GET /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "POST /apis/apps/v1/namespaces/shop/replicasets",
                "PUT /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "PUT /apis/apps/v1/namespaces/shop/replicasets/web-1/status",
                "PATCH /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "DELETE /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "GET /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb-1-x&limit=500",
                "PATCH /api/v1/namespaces/shop/pods/web-1-x",
                "DELETE /api/v1/namespaces/shop/pods/web-1-x",
            ]
        );
        let accepts = |request: &RecordedRequest| {
            let accept = request.header("accept").unwrap();
            accept.starts_with("application/json;as=PartialObjectMetadata;")
        };
        let metadata_only: Vec<_> =
            server.requests().into_iter().filter(accepts).map(|request| request.to_string()).collect();
        assert_eq!(
            metadata_only,
            [
                "DELETE /apis/apps/v1/namespaces/shop/replicasets/web-1",
                "DELETE /api/v1/namespaces/shop/pods/web-1-x",
            ]
        );
    }
}
