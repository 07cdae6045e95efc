//! Typed access to the objects of one resource.

#[cfg(feature = "kube")]
mod finalizers;
mod names;
mod options;
mod patch;
mod read;
mod subresources;
#[cfg(test)]
mod tests;
mod write;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kcm_api::ApiError;
use kcm_meta::{ApiResource, JsonDecoder, Kind};
use serde::de::DeserializeOwned;

pub use self::{
    names::ObjectName,
    options::{DeleteOptions, FieldValidation, ListParams, Page, Preconditions, Propagation, WriteOptions},
    patch::{ApplyOptions, Patch, PatchBody},
    subresources::{Scale, ScaleSpec, ScaleStatus},
};
use crate::{
    ApiClient, Permit,
    decode::Decode,
    request::{ContentType, Representation},
};

/// Objects of one resource, in all namespaces or in one. Cheap to clone.
///
/// Created by [`ApiClient::api`] for a type whose resource is known, and by [`ApiClient::api_for`] for others, such as
/// `DynamicObject`. Every verb sends one request, except [`list`](Self::list), which sends one per page. All share the
/// rate limit of the client; see [`ApiClient::send`] for timeouts and cancellation.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
/// # use example::*;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kcm_client::{DeleteOptions, ListParams, Patch};
/// use serde_json::json;
///
/// # run(async |client| {
/// // `client` is an `ApiClient`, `config_map(name)` a ConfigMap without content.
/// let config_maps = client.api::<ConfigMap>().namespaced("shop");
///
/// let created = config_maps.create(&config_map("web")).await?;
/// assert_eq!(config_maps.get("web").await?, created);
///
/// let patch = Patch::merge(&json!({"data": {"colour": "green"}}));
/// let patched = config_maps.patch("web", &patch).await?;
/// assert_eq!(patched.data.unwrap()["colour"], "green");
///
/// assert_eq!(config_maps.list(&ListParams::default()).await?.items.len(), 1);
/// config_maps.delete("web", &DeleteOptions::default()).await?;
/// # Ok(())
/// # });
/// ```
///
/// # Requests that are sent again
///
/// A request whose connection breaks may have taken effect. The client sends it again if that has no further effect:
///
/// | Request | After a broken connection | After 5xx with `Retry-After` |
/// |---|---|---|
/// | reads | yes | yes |
/// | create with a name; repeated, it fails with `AlreadyExists` | for 10 s | yes |
/// | delete or evict with a precondition; repeated, it fails with `NotFound` or `Conflict` | for 10 s | yes |
/// | server-side apply | for 10 s | yes |
/// | replace, merge patch, strategic merge patch, other deletes and evictions | no | yes |
/// | JSON patch that tests the resource version, or the value that it replaces | no | yes |
/// | create with `generateName`, other JSON patches | no | no |
///
/// All are sent again after 429 with `Retry-After`, which an API server returns before it processes a request. See
/// [`Idempotency`](crate::Idempotency).
///
/// Upstream counterparts: the typed clients of client-go, and controller-runtime's `client.Client`.
pub struct Api<K> {
    client: ApiClient,
    resource: Arc<ApiResource>,
    /// `None` for all namespaces, and for a cluster-scoped resource.
    namespace: Option<Arc<str>>,
    decoder: Arc<dyn Decode<K>>,
    metadata_only: bool,
    write_options: WriteOptions,
    /// `true` if objects are protobuf. Becomes `false` when only JSON carries an object, or the API server refuses it.
    protobuf: Arc<AtomicBool>,
}

impl ApiClient {
    /// Returns the objects of type `K`, in all namespaces.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::Deployment;
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>();
    /// assert_eq!(deployments.resource().to_string(), "deployments.apps");
    /// # Ok(())
    /// # });
    /// ```
    pub fn api<K: Kind<Decoder: Decode<K>>>(&self) -> Api<K> {
        Api::new(self.clone(), K::resource(), Arc::new(K::Decoder::default()), K::is_metadata_only())
    }

    /// Returns the objects of `resource`, in all namespaces. For types whose resource is known at run time only, and for
    /// types that have no [`Kind`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use kcm_client::{ApiResource, ListParams};
    /// use kube_client::core::DynamicObject;
    ///
    /// # run(async |client| {
    /// const CONFIG_MAPS: ApiResource = ApiResource::namespaced("", "v1", "ConfigMap", "configmaps");
    /// let config_maps = client.api_for::<DynamicObject>(CONFIG_MAPS);
    /// assert!(config_maps.list(&ListParams::default()).await?.items.is_empty());
    /// # Ok(())
    /// # });
    /// ```
    pub fn api_for<K: DeserializeOwned + Send + Sync + 'static>(&self, resource: ApiResource) -> Api<K> {
        Api::new(self.clone(), resource, Arc::new(JsonDecoder), false)
    }
}

impl<K> Api<K> {
    fn new(client: ApiClient, resource: ApiResource, decoder: Arc<dyn Decode<K>>, metadata_only: bool) -> Self
    where
        K: 'static,
    {
        let (resource, write_options) = (Arc::new(resource), WriteOptions::default());
        let protobuf = client.content_type() == ContentType::Protobuf && decoder.supports_protobuf();
        let protobuf = Arc::new(AtomicBool::new(protobuf));
        Self { client, resource, namespace: None, decoder, metadata_only, write_options, protobuf }
    }

    /// Returns the objects in `namespace`. An empty `namespace` selects all namespaces.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::ListParams;
    ///
    /// # run(async |client| {
    /// let shop = client.api::<ConfigMap>().namespaced("shop");
    /// shop.create(&config_map("web")).await?;
    /// let farm = shop.namespaced("farm");
    /// assert!(farm.list(&ListParams::default()).await?.items.is_empty());
    /// # Ok(())
    /// # });
    /// ```
    #[must_use]
    pub fn namespaced(&self, namespace: &str) -> Self {
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        Self { namespace, ..self.clone() }
    }

    /// Returns the same objects with options for all writes.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::WriteOptions;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let dry_run = WriteOptions { dry_run: true, ..WriteOptions::default() };
    /// config_maps.with_write_options(dry_run).create(&config_map("web")).await?;
    /// assert!(config_maps.get("web").await.unwrap_err().is_not_found());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// Upstream counterparts: controller-runtime's `client.NewDryRunClient`, `WithFieldOwner` and `WithFieldValidation`.
    #[must_use]
    pub fn with_write_options(&self, write_options: WriteOptions) -> Self {
        Self { write_options, ..self.clone() }
    }

    /// Returns the same objects with a client whose next request takes the token of `permit`.
    #[must_use]
    pub fn with_permit(&self, permit: Permit) -> Self {
        Self { client: self.client.with_permit(permit), ..self.clone() }
    }

    /// Returns the resource.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Returns the namespace, or `None` for all namespaces and for a cluster-scoped resource.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the client that sends the requests.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    pub(crate) fn decoder(&self) -> &Arc<dyn Decode<K>> {
        &self.decoder
    }

    /// Returns an error of a request that is not sent. It names the resource.
    fn invalid(&self, why: impl fmt::Display) -> ApiError {
        ApiError::InvalidRequest(format!("invalid request for {}: {why}", self.resource).into())
    }
}

impl<K: 'static> Api<K> {
    /// Returns the accepted media types of a response with an object.
    pub(crate) fn accept(&self, metadata_only: bool) -> &'static str {
        self.accept_as(metadata_only, Representation::Metadata)
    }

    /// Returns the accepted media types of a response with a list.
    pub(crate) fn accept_list(&self, metadata_only: bool) -> &'static str {
        self.accept_as(metadata_only, Representation::MetadataList)
    }

    /// `true` if objects are read and written in protobuf.
    pub(crate) fn uses_protobuf(&self) -> bool {
        self.protobuf.load(Ordering::Relaxed)
    }

    /// Reads and writes objects in JSON from now on, if the type needs that to keep all fields. Returns `true` if the
    /// request can be repeated for that reason.
    pub(crate) fn fall_back_to_json(&self, cause: &dyn fmt::Display) -> bool {
        if !self.decoder.falls_back_to_json() {
            return false;
        }
        if self.protobuf.swap(false, Ordering::Relaxed) {
            let resource = format_args!("{}", self.resource);
            tracing::info!(%resource, err = %cause, "Requesting JSON, because protobuf does not carry all fields");
        }
        true
    }

    fn accept_as(&self, metadata_only: bool, metadata: Representation) -> &'static str {
        let content_type = if self.uses_protobuf() { ContentType::Protobuf } else { ContentType::Json };
        let metadata_only = metadata_only || self.metadata_only;
        content_type.accept(if metadata_only { metadata } else { Representation::Whole })
    }
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            resource: Arc::clone(&self.resource),
            namespace: self.namespace.clone(),
            decoder: Arc::clone(&self.decoder),
            metadata_only: self.metadata_only,
            write_options: self.write_options.clone(),
            protobuf: Arc::clone(&self.protobuf),
        }
    }
}

impl<K> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("resource", &format_args!("{}", self.resource))
            .field("namespace", &self.namespace)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
