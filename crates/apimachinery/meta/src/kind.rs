use std::{borrow::Cow, fmt};

use crate::Object;

/// Resource of the Kubernetes API: the names that a client needs for its requests.
///
/// ```
/// use kcm_meta::ApiResource;
///
/// const WEBSITES: ApiResource = ApiResource::namespaced("example.com", "v1", "Website", "websites");
/// assert_eq!(WEBSITES.api_version(), "example.com/v1");
/// assert_eq!(WEBSITES.to_string(), "websites.example.com");
/// ```
///
/// Upstream counterparts: `schema.GroupVersionResource`, `meta.RESTMapping`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// API group, such as `apps`. Empty for the core group.
    pub group: Cow<'static, str>,
    /// Version, such as `v1`.
    pub version: Cow<'static, str>,
    /// Kind, such as `Deployment`.
    pub kind: Cow<'static, str>,
    /// Plural name, as in paths, such as `deployments`.
    pub plural: Cow<'static, str>,
    /// `true` if the objects are in namespaces.
    pub namespaced: bool,
}

impl ApiResource {
    /// Creates a resource whose objects are in namespaces.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::new(group, version, kind, plural, true)
    }

    /// Creates a cluster-scoped resource.
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::new(group, version, kind, plural, false)
    }

    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// Returns group and version as in `apiVersion`: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> Cow<'_, str> {
        if self.group.is_empty() {
            Cow::Borrowed(&self.version)
        } else {
            Cow::Owned(format!("{}/{}", self.group, self.version))
        }
    }
}

/// Displays as upstream's `GroupResource`: `deployments.apps`, or `pods` for the core group.
impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Type whose resource is known without an object.
///
/// With the feature `kube`, every `kube_core::Resource` without a dynamic type implements it: types of `k8s-openapi`, types
/// that derive `CustomResource`, and `PartialObjectMeta` of both. For a `DynamicObject`, a client requires an
/// [`ApiResource`] instead.
///
/// Other types implement it:
///
/// ```
/// use kcm_meta::{ApiResource, ControllerRef, JsonDecoder, Kind, Object, ObjectKey, Timestamp};
///
/// /// The parts of a Website that an operator needs. Clients require serde's `Deserialize` of it.
/// struct Website {
///     key: ObjectKey,
///     uid: String,
///     resource_version: String,
/// }
///
/// impl Kind for Website {
///     type Decoder = JsonDecoder;
///
///     fn resource() -> ApiResource {
///         ApiResource::namespaced("example.com", "v1", "Website", "websites")
///     }
/// }
///
/// impl Object for Website {
///     fn key(&self) -> ObjectKey {
///         self.key.clone()
///     }
///
///     fn uid_str(&self) -> &str {
///         &self.uid
///     }
///
///     fn resource_version_str(&self) -> &str {
///         &self.resource_version
///     }
///
///     // This operator does not use the rest.
///     fn label(&self, _: &str) -> Option<&str> {
///         None
///     }
///     fn creation_time(&self) -> Option<Timestamp> {
///         None
///     }
///     fn deletion_timestamp(&self) -> Option<Timestamp> {
///         None
///     }
///     fn controller(&self) -> Option<ControllerRef<'_>> {
///         None
///     }
/// }
///
/// assert_eq!(Website::resource().to_string(), "websites.example.com");
/// ```
///
/// Upstream counterpart: `runtime.Scheme`, which maps Go types to kinds.
#[diagnostic::on_unimplemented(
    message = "the resource of `{Self}` is not known at compile time",
    note = "types of k8s-openapi and custom resources implement `Kind` if the feature `kube` of `kcm`, or of each `kcm-…` crate in use, is enabled",
    note = "for a `DynamicObject`, pass its `ApiResource`, as to `ApiClient::api_for`"
)]
pub trait Kind: Object {
    /// State for decoding that objects of one list or watch share: [`JsonDecoder`] if there is none.
    type Decoder: Default + Send + Sync + 'static;

    /// Returns the resource.
    fn resource() -> ApiResource;

    /// `true` if the type has the metadata of objects only. Clients then request `PartialObjectMetadata`.
    fn is_metadata_only() -> bool {
        false
    }
}

/// Decoder of types that implement serde's `Deserialize`.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonDecoder;

/// Type that the API server patches with strategic merge patches.
///
/// Types that are built into the API server have this kind of patch; custom resources do not. With the feature `kube`,
/// all types of `k8s-openapi` implement it.
pub trait StrategicMerge {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_core_resources_have_no_group() {
        let pods = ApiResource::namespaced("", "v1", "Pod", "pods");
        assert_eq!((&*pods.api_version(), pods.to_string()), ("v1", "pods".to_owned()));
        let roles =
            ApiResource::cluster_scoped("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
        assert_eq!(roles.api_version(), "rbac.authorization.k8s.io/v1");
        assert_eq!(roles.to_string(), "clusterroles.rbac.authorization.k8s.io");
        assert!(pods.namespaced && !roles.namespaced);
    }
}
