//! The verbs of the controllers.

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use kcm_api::{ApiError, Deployment, ObjectKey, Pod, PodDecoder, ReplicaSet};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{DeploymentControl, PodControl, PodManifest, ReplicaSetControl};
use kcm_events::EventSink;
use kcm_informer::ListOptions;
use serde::Serialize;
use serde_json::Value;

use crate::{
    ApiClient,
    kind::Kind,
    list::{self, Scope},
    request::{Request, namespaced_path, object_path},
};

/// No precondition, no grace period, the kind's own propagation (US-3.3).
const DELETE_OPTIONS: &[u8] = br#"{"kind":"DeleteOptions","apiVersion":"v1"}"#;

const EVENTS: &str = "events";
const CORE: &str = "v1";

impl ApiClient {
    /// The newest state of an object, past all caches.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); [`ApiError::Decode`] when what comes is not such an object.
    pub async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<K, ApiError> {
        self.one(&Request::get(path::<K>(key))).await
    }

    /// Creates an object from its JSON text, which contains its name; answers with it as stored.
    ///
    /// The name makes the request idempotent, so that it is sent again if its connection breaks. If an attempt took
    /// effect, the next one is refused: `AlreadyExists` may mean that this call created the object.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn create<K: Kind>(&self, namespace: &str, body: impl Into<Bytes>) -> Result<K, ApiError> {
        let path = namespaced_path(K::API_VERSION, K::PLURAL, namespace);
        self.one(&Request::create(path, body)).await
    }

    /// Replaces an object, or a part of it such as `status`, by its JSON text; answers with it as stored.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn replace<K: Kind>(
        &self,
        key: &ObjectKey,
        subresource: Option<&str>,
        body: impl Into<Bytes>,
    ) -> Result<K, ApiError> {
        let mut path = path::<K>(key);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
        }
        self.one(&Request::json(Method::PUT, path, body)).await
    }

    /// Changes an object by a strategic merge patch; answers with it as it is now.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn patch<K: Kind>(&self, key: &ObjectKey, patch: &str) -> Result<K, ApiError> {
        self.one(&Request::strategic_merge_patch(path::<K>(key), patch.to_owned())).await
    }

    /// Asks for an object to go, without conditions.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn delete<K: Kind>(&self, key: &ObjectKey) -> Result<(), ApiError> {
        let body = Bytes::from_static(DELETE_OPTIONS);
        self.send(&Request::json(Method::DELETE, path::<K>(key), body)).await.map(drop)
    }

    async fn one<K: Kind>(&self, request: &Request) -> Result<K, ApiError> {
        let body = self.send(request).await?;
        let text = std::str::from_utf8(&body).map_err(|error| self.undecodable(request, &error))?;
        K::decode(&K::Decoder::default(), text).map_err(|error| self.undecodable(request, &error))
    }

    fn undecodable(&self, request: &Request, error: &dyn std::fmt::Display) -> ApiError {
        ApiError::Decode(format!("{}: the answer cannot be decoded: {error}", self.describe(request)))
    }

    async fn event(&self, request: &Request) -> Result<Value, ApiError> {
        let body = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| self.undecodable(request, &error))
    }
}

fn path<K: Kind>(key: &ObjectKey) -> String {
    object_path(K::API_VERSION, K::PLURAL, key)
}

/// The JSON text of an object, with its type: in a list the items come without.
pub(crate) fn typed_json<K: Kind + Serialize>(object: &K, is_typed: bool) -> Result<Bytes, ApiError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed<'a, K> {
        kind: &'static str,
        api_version: &'static str,
        #[serde(flatten)]
        object: &'a K,
    }
    let json = if is_typed {
        serde_json::to_vec(object)
    } else {
        serde_json::to_vec(&Typed { kind: K::KIND, api_version: K::API_VERSION, object })
    };
    json.map(Bytes::from)
        .map_err(|error| ApiError::Decode(format!("cannot encode {} {}: {error}", K::KIND, object.key())))
}

fn replica_set_json(object: &ReplicaSet) -> Result<Bytes, ApiError> {
    typed_json(object, !object.kind.is_empty() && !object.api_version.is_empty())
}

fn deployment_json(object: &Deployment) -> Result<Bytes, ApiError> {
    typed_json(object, !object.kind.is_empty() && !object.api_version.is_empty())
}

#[async_trait]
impl PodControl for ApiClient {
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        self.create(&key.namespace, manifest.to_json(&key.name)).await
    }

    /// A list, because upstream's roles for the controllers of pods allow to list pods and not to get one.
    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        // No version: the newest state, not that of the server's watch cache.
        let newest = ListOptions { resource_version: None };
        let mut list = list::list::<Pod>(self, &PodDecoder::default(), Scope::One(key), &newest).await?;
        match list.undecodable.pop() {
            Some(pod) => Err(ApiError::Decode(format!("pod {key} cannot be decoded: {}", pod.error))),
            None => Ok(list.items.pop()),
        }
    }

    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        self.delete::<Pod>(pod).await
    }

    async fn patch_pod(&self, pod: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        self.patch(pod, patch.as_json()).await
    }
}

#[async_trait]
impl ReplicaSetControl for ApiClient {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.get(key).await
    }

    async fn create_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.create(&replica_set.metadata.namespace, replica_set_json(replica_set)?).await
    }

    async fn update_replica_set(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replace(&replica_set.metadata.key(), None, replica_set_json(replica_set)?).await
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.replace(&replica_set.metadata.key(), Some("status"), replica_set_json(replica_set)?).await
    }

    async fn delete_replica_set(&self, key: &ObjectKey) -> Result<(), ApiError> {
        self.delete::<ReplicaSet>(key).await
    }

    async fn patch_replica_set(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        self.patch(key, patch.as_json()).await
    }
}

#[async_trait]
impl DeploymentControl for ApiClient {
    async fn get_deployment(&self, key: &ObjectKey) -> Result<Deployment, ApiError> {
        self.get(key).await
    }

    async fn update_deployment(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.replace(&deployment.metadata.key(), None, deployment_json(deployment)?).await
    }

    async fn update_deployment_status(&self, deployment: &Deployment) -> Result<Deployment, ApiError> {
        self.replace(&deployment.metadata.key(), Some("status"), deployment_json(deployment)?).await
    }
}

#[async_trait]
impl EventSink for ApiClient {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        let path = namespaced_path(CORE, EVENTS, namespace);
        self.event(&Request::create(path, event.to_string())).await
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        let path = object_path(CORE, EVENTS, &ObjectKey::new(namespace, name));
        self.event(&Request::strategic_merge_patch(path, patch.to_string())).await
    }
}
