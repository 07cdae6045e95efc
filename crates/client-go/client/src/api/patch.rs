//! Patches.

use std::{borrow::Cow, fmt, marker::PhantomData};

use bytes::Bytes;
use kcm_meta::StrategicMerge;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::{APPLY_PATCH, Idempotency, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH};

/// Patch of objects of type `K`.
///
/// The content is a reference to a serializable value, or a [`String`] or [`Bytes`] with JSON text. A patch that cannot be encoded is an
/// error of the request that sends it.
///
/// Upstream counterparts: `types.PatchType`, controller-runtime's `client.Patch`.
pub struct Patch<K> {
    pub(super) media: &'static str,
    pub(super) body: Result<Bytes, String>,
    pub(super) idempotency: Idempotency,
    /// Only for server-side apply.
    pub(super) apply: Option<ApplyOptions>,
    kind: PhantomData<fn(K)>,
}

/// Options of a server-side apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Name of the writer, which owns the applied fields. Unique among the writers of the object.
    pub field_manager: String,
    /// If `true`, the writer takes fields that other writers own. Otherwise the request fails with a conflict.
    pub force: bool,
}

impl ApplyOptions {
    /// Creates options without `force`.
    pub fn new(field_manager: impl Into<String>) -> Self {
        Self { field_manager: field_manager.into(), force: false }
    }
}

/// Content of a [`Patch`].
#[derive(Debug, Clone)]
pub struct PatchBody(Result<Bytes, String>);

impl<T: Serialize + ?Sized> From<&T> for PatchBody {
    fn from(value: &T) -> Self {
        Self(serde_json::to_vec(value).map(Bytes::from).map_err(|error| error.to_string()))
    }
}

/// JSON text.
impl From<String> for PatchBody {
    fn from(json: String) -> Self {
        Self(Ok(json.into()))
    }
}

/// JSON text.
impl From<Bytes> for PatchBody {
    fn from(json: Bytes) -> Self {
        Self(Ok(json))
    }
}

impl PatchBody {
    /// Requires that the content starts with `start`: a text that was passed for its JSON value would be a JSON string.
    fn starting_with(self, start: u8, expected: &str) -> Result<Bytes, String> {
        let body = self.0?;
        if body.trim_ascii_start().first() == Some(&start) {
            Ok(body)
        } else {
            Err(format!("the patch is not {expected}"))
        }
    }
}

impl<K> Patch<K> {
    fn object(media: &'static str, body: PatchBody, idempotency: Idempotency) -> Self {
        let body = body.starting_with(b'{', "a JSON object");
        Self { media, body, idempotency, apply: None, kind: PhantomData }
    }

    /// Creates a JSON patch (RFC 6902): an array of operations.
    ///
    /// It is sent again after some errors only if it tests the resource version, or the value that it replaces.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::Patch;
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// # let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// # config_maps.create(&config_map("web")).await?;
    /// let patch = Patch::json(&json!([{"op": "add", "path": "/data", "value": {"colour": "green"}}]));
    /// assert_eq!(config_maps.patch("web", &patch).await?.data.unwrap()["colour"], "green");
    /// # Ok(())
    /// # });
    /// ```
    pub fn json(operations: impl Into<PatchBody>) -> Self {
        let body = operations.into().starting_with(b'[', "a JSON array of operations");
        let (body, idempotency) = match body.and_then(|body| Ok((json_patch_idempotency(&body)?, body))) {
            Ok((idempotency, body)) => (Ok(body), idempotency),
            Err(error) => (Err(error), Idempotency::NotIdempotent),
        };
        Self { media: JSON_PATCH, body, idempotency, apply: None, kind: PhantomData }
    }

    /// Creates a merge patch (RFC 7396). It replaces lists as a whole, and removes fields that are `null`.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::Patch;
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// # let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// # config_maps.create(&config_map("web")).await?;
    /// let patch = Patch::merge(&json!({"metadata": {"labels": {"app": "web"}}}));
    /// assert_eq!(config_maps.patch("web", &patch).await?.metadata.labels.unwrap()["app"], "web");
    /// # Ok(())
    /// # });
    /// ```
    pub fn merge(body: impl Into<PatchBody>) -> Self {
        Self::object(MERGE_PATCH, body.into(), Idempotency::Change)
    }

    /// Creates a strategic merge patch. It merges lists by the keys that the type defines.
    ///
    /// Custom resources do not have this kind of patch:
    ///
    /// ```compile_fail,E0277
    /// # use kube_client::core::DynamicObject;
    /// let patch = kcm_client::Patch::<DynamicObject>::strategic(&serde_json::json!({}));
    /// ```
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::Patch;
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// # let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// # config_maps.create(&config_map("web")).await?;
    /// let add_finalizer = Patch::strategic(&json!({"metadata": {"finalizers": ["example.com/dns"]}}));
    /// let patched = config_maps.patch("web", &add_finalizer).await?;
    /// assert_eq!(patched.metadata.finalizers.unwrap(), ["example.com/dns"]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn strategic(body: impl Into<PatchBody>) -> Self
    where
        K: StrategicMerge,
    {
        Self::object(STRATEGIC_MERGE_PATCH, body.into(), Idempotency::Change)
    }

    /// Creates a server-side apply: `body` contains the fields that the writer wants to have, and owns from then on.
    /// Creates the object if it does not exist.
    ///
    /// The client adds `apiVersion` and `kind` to `body` if they are absent.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::{ApplyOptions, Patch};
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// # let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let body = json!({"metadata": {"name": "web"}, "data": {"colour": "green"}});
    /// let apply = Patch::apply(&body, ApplyOptions::new("example-operator"));
    /// assert_eq!(config_maps.patch("web", &apply).await?.data.unwrap()["colour"], "green");
    /// # Ok(())
    /// # });
    /// ```
    pub fn apply(body: impl Into<PatchBody>, options: ApplyOptions) -> Self {
        Self { apply: Some(options), ..Self::object(APPLY_PATCH, body.into(), Idempotency::Idempotent) }
    }

    /// Returns the effect of sending the patch more than once.
    pub fn idempotency(&self) -> Idempotency {
        self.idempotency
    }
}

impl<K> Clone for Patch<K> {
    fn clone(&self) -> Self {
        let Self { media, body, idempotency, apply, kind } = self;
        Self { media, body: body.clone(), idempotency: *idempotency, apply: apply.clone(), kind: *kind }
    }
}

impl<K> fmt::Debug for Patch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patch")
            .field("media", &self.media)
            .field("idempotency", &self.idempotency)
            .field("apply", &self.apply)
            .finish_non_exhaustive()
    }
}

/// Effect of sending a JSON patch more than once.
///
/// A patch that fails if it was applied before has no further effect: it tests the resource version, or it replaces a value
/// that it tests. Any other patch may add an element to a list twice.
fn json_patch_idempotency(body: &[u8]) -> Result<Idempotency, String> {
    #[derive(Deserialize)]
    struct Operation<'a> {
        #[serde(borrow)]
        op: Cow<'a, str>,
        #[serde(borrow)]
        path: Cow<'a, str>,
        #[serde(default)]
        value: Value,
    }
    let operations: Vec<Operation<'_>> =
        serde_json::from_slice(body).map_err(|error| format!("the patch is not a JSON patch: {error}"))?;
    let replaces = |test: &Operation<'_>| {
        let mut replaced = operations.iter().filter(|operation| operation.op == "replace");
        replaced.any(|operation| operation.path == test.path && operation.value != test.value)
    };
    let mut tests = operations.iter().filter(|operation| operation.op == "test");
    Ok(if tests.any(|test| test.path == "/metadata/resourceVersion" || replaces(test)) {
        Idempotency::Change
    } else {
        Idempotency::NotIdempotent
    })
}
