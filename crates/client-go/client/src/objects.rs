//! Reads and writes of single objects.

use bytes::Bytes;
use http::Method;
use kcm_api::{ApiError, ObjectKey};
use kcm_informer::ListOptions;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    ApiClient,
    kind::{Kind, WritableKind},
    list::{self, Scope},
    request::{Request, namespaced_path, object_path},
};

/// Options of every delete: no precondition, the default grace period and the default propagation (US-3.3).
const DELETE_OPTIONS: &[u8] = br#"{"kind":"DeleteOptions","apiVersion":"v1"}"#;

const STATUS: &str = "status";

/// Reads and writes of single objects. Each sends one request, see [`send`](Self::send) for retries and cancellation.
impl ApiClient {
    /// Returns the newest state of an object. It is read from the API server, not from a cache.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), and [`ApiError::Decode`] if the response is not such an object.
    pub async fn get<K: Kind>(&self, key: &ObjectKey) -> Result<K, ApiError> {
        self.send_for_object(&Request::get(path::<K>(key))).await
    }

    /// Returns the newest state of an object, or `None` if it does not exist. Requires the permission to list.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn find<K: Kind>(&self, key: &ObjectKey) -> Result<Option<K>, ApiError> {
        // Without a resource version, the API server does not answer from its watch cache.
        let newest = ListOptions { resource_version: None };
        let mut list = list::list::<K>(self, &K::Decoder::default(), Scope::One(key), &newest).await?;
        match list.undecodable.pop() {
            Some(object) => {
                Err(ApiError::Decode(format!("failed to decode {} {key}: {}", K::KIND, object.error)))
            }
            None => Ok(list.items.pop()),
        }
    }

    /// Creates an object and returns it as stored.
    ///
    /// The name makes the request idempotent: it is sent again if its connection breaks. An earlier attempt may have
    /// taken effect, so `AlreadyExists` may mean that this call created the object.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn create<K: WritableKind>(&self, object: &K) -> Result<K, ApiError> {
        self.create_json(&object.key().namespace, typed_json(object)?).await
    }

    /// Creates an object from JSON, as [`create`](Self::create). The JSON must contain `metadata.name`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn create_json<K: Kind>(&self, namespace: &str, json: impl Into<Bytes>) -> Result<K, ApiError> {
        let path = namespaced_path(K::API_VERSION, K::PLURAL, namespace);
        self.send_for_object(&Request::create(path, json)).await
    }

    /// Replaces an object and returns it as stored.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get). A conflict if the object was changed since the resource version of `object`.
    pub async fn update<K: WritableKind>(&self, object: &K) -> Result<K, ApiError> {
        self.send_for_object(&Request::json(Method::PUT, path::<K>(&object.key()), typed_json(object)?)).await
    }

    /// Replaces the status of an object and returns the object as stored.
    ///
    /// # Errors
    ///
    /// Those of [`update`](Self::update).
    pub async fn update_status<K: WritableKind>(&self, object: &K) -> Result<K, ApiError> {
        let path = format!("{}/{STATUS}", path::<K>(&object.key()));
        self.send_for_object(&Request::json(Method::PUT, path, typed_json(object)?)).await
    }

    /// Changes an object by a strategic merge patch and returns it as stored.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn patch<K: Kind>(&self, key: &ObjectKey, patch: impl Into<Bytes>) -> Result<K, ApiError> {
        self.send_for_object(&Request::strategic_merge_patch(path::<K>(key), patch)).await
    }

    /// Deletes an object, with the default grace period and propagation of its kind.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send).
    pub async fn delete<K: Kind>(&self, key: &ObjectKey) -> Result<(), ApiError> {
        let body = Bytes::from_static(DELETE_OPTIONS);
        self.send(&Request::delete(path::<K>(key), body)).await.map(drop)
    }

    /// Sends `request` and deserializes the response.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send), and [`ApiError::Decode`] if the response cannot be deserialized.
    pub async fn send_for<T: DeserializeOwned>(&self, request: &Request) -> Result<T, ApiError> {
        let body = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| self.undecodable(request, &error))
    }

    async fn send_for_object<K: Kind>(&self, request: &Request) -> Result<K, ApiError> {
        let body = self.send(request).await?;
        let text = std::str::from_utf8(&body).map_err(|error| self.undecodable(request, &error))?;
        K::decode(&K::Decoder::default(), text).map_err(|error| self.undecodable(request, &error))
    }

    fn undecodable(&self, request: &Request, error: &dyn std::fmt::Display) -> ApiError {
        ApiError::Decode(format!("{}: failed to decode the response: {error}", self.describe(request)))
    }
}

fn path<K: Kind>(key: &ObjectKey) -> String {
    object_path(K::API_VERSION, K::PLURAL, key)
}

/// JSON of an object, including its type.
fn typed_json<K: WritableKind>(object: &K) -> Result<Bytes, ApiError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed<'a, K> {
        kind: &'static str,
        api_version: &'static str,
        #[serde(flatten)]
        object: &'a K,
    }
    let json = if object.is_typed() {
        serde_json::to_vec(object)
    } else {
        serde_json::to_vec(&Typed { kind: K::KIND, api_version: K::API_VERSION, object })
    };
    json.map(Bytes::from)
        .map_err(|error| ApiError::Decode(format!("failed to encode {} {}: {error}", K::KIND, object.key())))
}
