//! Finalizers.

use kcm_api::ApiError;
use kcm_meta::Object;
use kube_client::core::Resource;
use serde_json::json;

use super::{Api, Patch};

impl<K: Resource + Object> Api<K> {
    /// Adds a finalizer. Returns the object as stored, or `None` if it has the finalizer, without a request.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let web = config_maps.create(&config_map("web")).await?;
    /// let Some(web) = config_maps.add_finalizer(&web, "example.org/dns").await? else { return Ok(()) };
    /// assert_eq!(web.metadata.finalizers, Some(vec!["example.org/dns".to_owned()]));
    /// assert!(config_maps.add_finalizer(&web, "example.org/dns").await?.is_none());
    /// let web = config_maps.remove_finalizer(&web, "example.org/dns").await?;
    /// assert!(web.is_some_and(|web| web.metadata.finalizers.is_none()));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// Upstream counterpart: `AddFinalizer` of controller-runtime, with the request.
    ///
    /// # Errors
    ///
    /// Those of [`patch`](Self::patch). A conflict if the object has changed since it was read.
    pub async fn add_finalizer(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApiError> {
        let old = object.meta().finalizers.as_deref().unwrap_or_default();
        if old.iter().any(|old| old == finalizer) {
            return Ok(None);
        }
        let finalizers: Vec<_> = old.iter().map(String::as_str).chain([finalizer]).collect();
        self.set_finalizers(object, &finalizers).await.map(Some)
    }

    /// Removes a finalizer. Returns the object as stored, or `None` if it does not have the finalizer, without a request.
    ///
    /// Upstream counterpart: `RemoveFinalizer` of controller-runtime, with the request.
    ///
    /// # Errors
    ///
    /// Those of [`add_finalizer`](Self::add_finalizer).
    pub async fn remove_finalizer(&self, object: &K, finalizer: &str) -> Result<Option<K>, ApiError> {
        let old = object.meta().finalizers.as_deref().unwrap_or_default();
        let finalizers: Vec<_> = old.iter().map(String::as_str).filter(|old| *old != finalizer).collect();
        if finalizers.len() == old.len() {
            return Ok(None);
        }
        self.set_finalizers(object, &finalizers).await.map(Some)
    }

    /// The resource version makes the request fail if `object` is outdated: a merge patch replaces all finalizers.
    async fn set_finalizers(&self, object: &K, finalizers: &[&str]) -> Result<K, ApiError> {
        let metadata = json!({"resourceVersion": object.resource_version_str(), "finalizers": finalizers});
        self.patch(&object.key(), &Patch::merge(&json!({ "metadata": metadata }))).await
    }
}
