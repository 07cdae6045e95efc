use std::sync::Arc;

use kcm_meta::{Kind, ObjectKey};
use serde::Serialize;

/// Object that an event is about. Empty fields are not serialized.
///
/// Upstream counterpart: `v1.ObjectReference`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version of the kind, such as `apps/v1`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: Arc<str>,
    /// Kind.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Arc<str>,
    /// Namespace; empty for an object of a cluster-scoped type.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    /// Name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// UID.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Arc<str>,
    /// Resource version of the object. Events are correlated without it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

impl ObjectReference {
    /// Returns the reference to `object`, of any type with a [`Kind`]: with the feature `kube` of `kcm-meta`, those of
    /// k8s-openapi and custom resources.
    pub fn of<K: Kind>(object: &K) -> Self {
        let (resource, ObjectKey { namespace, name }) = (K::resource(), object.key());
        Self {
            api_version: resource.api_version().into(),
            kind: resource.kind.into(),
            namespace,
            name,
            uid: object.uid_str().into(),
            resource_version: object.resource_version_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_type_with_a_kind_has_a_reference() {
        let metadata =
            serde_json::json!({"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7"});
        let lease: kcm_api::Lease =
            serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap();
        let reference = ObjectReference::of(&lease);
        assert_eq!((&*reference.api_version, &*reference.kind), ("coordination.k8s.io/v1", "Lease"));
        assert_eq!((&*reference.namespace, &*reference.name, &*reference.uid), ("shop", "web", "u"));
        assert_eq!(reference.resource_version, "7");
    }
}
