//! Object metadata.

use std::{collections::BTreeMap, sync::Arc};

use crate::{ObjectKey, Time, lossless::Dropped};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Annotations by key.
pub type Annotations = BTreeMap<String, String>;

lossless! {
    /// Metadata of an object.
    ///
    /// `managedFields` is dropped: a PUT without it does not change it, and it is the largest part of many objects.
    /// Upstream's manager removes it from its caches, too (US-1.1).
    pub struct ObjectMeta {
        /// Name. Unique in the namespace among objects of the same kind; can be reused after deletion.
        pub name: Arc<str> = "name",
        /// Prefix of a name that the API server generates.
        pub generate_name: String = "generateName",
        /// Namespace. Empty for cluster-scoped objects.
        pub namespace: Arc<str> = "namespace",
        /// Unused. Kubernetes has not set it since 1.20.
        pub self_link: String = "selfLink",
        /// UID. Identifies the object; it is never reused.
        pub uid: Arc<str> = "uid",
        /// Opaque version of the stored object.
        pub resource_version: String = "resourceVersion",
        /// Incremented by the API server when the spec changes.
        pub generation: i64 = "generation",
        /// Time of creation.
        pub creation_timestamp: Option<Time> = "creationTimestamp",
        /// Time after which the object may be removed. Set when its deletion was requested.
        pub deletion_timestamp: Option<Time> = "deletionTimestamp",
        /// Grace period of the deletion, in seconds.
        pub deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        /// Labels.
        pub labels: Labels = "labels",
        /// Annotations.
        pub annotations: Annotations = "annotations",
        /// Owners of the object.
        pub owner_references: Vec<OwnerReference> = "ownerReferences",
        /// Finalizers that must be removed before the object is removed.
        pub finalizers: Vec<String> = "finalizers",
        /// Dropped. Public to allow `..ObjectMeta::default()`.
        pub managed_fields: Dropped = "managedFields",
    }
}

lossless! {
    /// Reference to an owner of an object.
    pub struct OwnerReference {
        /// Group and version of the owner's kind.
        pub api_version: String = "apiVersion" always,
        /// Kind of the owner.
        pub kind: String = "kind" always,
        /// Name of the owner.
        pub name: Arc<str> = "name" always,
        /// UID of the owner.
        pub uid: Arc<str> = "uid" always,
        /// `true` if the owner is the controller of the object.
        pub controller: Option<bool> = "controller",
        /// `true` if foreground deletion of the owner waits for the object.
        pub block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }
}

impl ObjectMeta {
    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// Returns the reference to the controller of the object: the first with `controller: true` (US-3.1).
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller_of(&self.owner_references)
    }

    /// `true` if the deletion of the object was requested.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// Returns the first reference with `controller: true`.
pub fn controller_of(references: &[OwnerReference]) -> Option<&OwnerReference> {
    references.iter().find(|reference| reference.controller == Some(true))
}

/// Reference to the controller of a [`Pod`](crate::Pod). Shared by all pods of that controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodControllerRef {
    /// Group and version of the owner's kind.
    pub api_version: Arc<str>,
    /// Kind of the owner.
    pub kind: Arc<str>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// UID of the owner.
    pub uid: Arc<str>,
    /// `true` if foreground deletion of the owner waits for the object.
    pub block_owner_deletion: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_unknown_fields_and_drops_managed_fields() {
        let text = json!({
            "name": "web", "namespace": "default", "labels": {"a": "b"}, "managedFields": [{"manager": "x"}],
            "futureField": {"deep": [1, 2]}, "annotations": null,
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "new": true}],
        });
        let meta: ObjectMeta = serde_json::from_value(text).unwrap();
        assert_eq!(
            serde_json::to_value(&meta).unwrap(),
            json!({
                "name": "web", "namespace": "default", "labels": {"a": "b"}, "futureField": {"deep": [1, 2]},
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "new": true}],
            })
        );
    }

    #[test]
    fn controller_is_the_first_with_controller_true() {
        let reference = |name: &str, controller| OwnerReference {
            name: name.into(),
            controller,
            ..OwnerReference::default()
        };
        let references = [reference("a", None), reference("b", Some(false)), reference("c", Some(true))];
        assert_eq!(controller_of(&references).map(|r| &*r.name), Some("c"));
    }
}
