//! [`Object`] and [`Kind`] for the types of kube-rs and k8s-openapi.

use std::borrow::Cow;

use jiff::Timestamp;
use kube_core::{ClusterResourceScope, NamespaceResourceScope, Resource};

use crate::{
    ApiResource, ControllerRef, JsonDecoder, Kind, Object, ObjectKey, SetResourceVersion, StrategicMerge,
};

impl<K: Resource + Send + Sync + 'static> Object for K {
    fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    fn uid_str(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn resource_version_str(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        self.meta().creation_timestamp.as_ref().map(|time| time.0)
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.meta().deletion_timestamp.as_ref().map(|time| time.0)
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        let references = self.meta().owner_references.as_deref().unwrap_or_default();
        let controller = references.iter().find(|reference| reference.controller == Some(true))?;
        Some(ControllerRef {
            api_version: &controller.api_version,
            kind: &controller.kind,
            name: &controller.name,
            uid: &controller.uid,
        })
    }
}

impl<K: Resource + Send + Sync + 'static> SetResourceVersion for K {
    fn set_resource_version(&mut self, version: &str) {
        self.meta_mut().resource_version = Some(version.to_owned());
    }
}

/// Scope of a resource that is known at compile time.
pub trait StaticScope {
    /// `true` if the objects are in namespaces.
    const NAMESPACED: bool;
}

impl StaticScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl StaticScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl<K> Kind for K
where
    K: Resource<DynamicType = (), Scope: StaticScope> + Send + Sync + 'static,
{
    type Decoder = JsonDecoder;

    fn resource() -> ApiResource {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        ApiResource {
            group: owned(K::group(&())),
            version: owned(K::version(&())),
            kind: owned(K::kind(&())),
            plural: owned(K::plural(&())),
            namespaced: K::Scope::NAMESPACED,
        }
    }

    fn is_metadata_only() -> bool {
        K::metadata_api()
    }
}

impl<K: k8s_openapi::Resource> StrategicMerge for K {}

impl ApiResource {
    /// Converts the resource of kube-rs, which does not contain the scope.
    pub fn from_kube(resource: kube_core::ApiResource, namespaced: bool) -> Self {
        let kube_core::ApiResource { group, version, kind, plural, .. } = resource;
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        }
    }
}
