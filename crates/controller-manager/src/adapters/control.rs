//! Pods, ReplicaSets and Deployments.

use async_trait::async_trait;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_client::{Api, ApiClient, DeleteOptions, Patch, WriteOptions};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{DeploymentControl, PodControl, PodManifest, ReplicaSetControl};

/// Client of a controller for pods, ReplicaSets and Deployments.
///
/// Upstream counterpart: `controller.RealPodControl`, `RealRSControl` and the typed clients.
#[derive(Debug, Clone)]
pub struct ClusterClient {
    pods: Api<Pod>,
    replica_sets: Api<ReplicaSet>,
    deployments: Api<Deployment>,
}

impl ClusterClient {
    /// Creates a client that sends requests through `client` and shares its rate limit.
    pub fn new(client: &ApiClient) -> Self {
        // Controllers read only the metadata of the pods that they write.
        let metadata_only = WriteOptions { metadata_only: true, ..WriteOptions::default() };
        Self {
            pods: client.api().with_write_options(metadata_only),
            replica_sets: client.api(),
            deployments: client.api(),
        }
    }
}

#[async_trait]
impl PodControl for ClusterClient {
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        self.pods.namespaced(&key.namespace).create_json(manifest.to_json(&key.name)).await
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
        self.pods.patch(pod, &Patch::strategic(patch.strategic_merge())).await
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
        self.replica_sets.replace_status(replica_set).await
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
        self.deployments.replace_status(deployment).await
    }
}

#[cfg(test)]
mod tests {
    use kcm_testkit::RecordedRequest;
    use serde_json::json;

    use super::*;
    use crate::adapters::testing::{client, scripted};

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
                "PATCH /api/v1/namespaces/shop/pods/web-1-x",
                "DELETE /api/v1/namespaces/shop/pods/web-1-x",
            ]
        );
    }
}
