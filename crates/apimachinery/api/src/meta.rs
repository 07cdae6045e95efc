//! What every object carries.

use std::{collections::BTreeMap, sync::Arc};

use crate::{ObjectKey, Time, lossless::Dropped};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Annotations by key.
pub type Annotations = BTreeMap<String, String>;

lossless! {
    /// Metadata of an object.
    ///
    /// `managedFields` is read past: a PUT without it leaves the server's as it is, and it is the largest part
    /// of many objects. Upstream's manager strips it from its caches for the same reason (US-1.1).
    pub struct ObjectMeta {
        /// Unique in the namespace at any one time, and free again after deletion.
        pub name: Arc<str> = "name",
        /// A stem for the server to make a name from.
        pub generate_name: String = "generateName",
        /// Where the object lives; empty for what lives in none.
        pub namespace: Arc<str> = "namespace",
        /// Which object this is, for ever.
        pub uid: Arc<str> = "uid",
        /// The version of the object that this is; opaque.
        pub resource_version: String = "resourceVersion",
        /// How often what is wanted has changed.
        pub generation: i64 = "generation",
        /// When the object was stored first.
        pub creation_timestamp: Option<Time> = "creationTimestamp",
        /// When the object is to be gone; set once somebody asked for that.
        pub deletion_timestamp: Option<Time> = "deletionTimestamp",
        /// How long it may take to stop, in seconds.
        pub deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        /// What the object is chosen by.
        pub labels: Labels = "labels",
        /// What tools keep on the object.
        pub annotations: Annotations = "annotations",
        /// What the object belongs to.
        pub owner_references: Vec<OwnerReference> = "ownerReferences",
        /// Who must agree before it goes.
        pub finalizers: Vec<String> = "finalizers",
        /// Read past. Public so that metadata can be made with `..ObjectMeta::default()`.
        pub managed_fields: Dropped = "managedFields",
    }
}

lossless! {
    /// A reference from an object to one that it belongs to.
    pub struct OwnerReference {
        /// Group and version of the owner's kind.
        pub api_version: String = "apiVersion" always,
        /// The owner's kind.
        pub kind: String = "kind" always,
        /// The owner's name.
        pub name: Arc<str> = "name" always,
        /// The owner's UID.
        pub uid: Arc<str> = "uid" always,
        /// Whether the owner is the one that manages the object.
        pub controller: Option<bool> = "controller",
        /// Whether the owner may not be gone before the object is.
        pub block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }
}

impl ObjectMeta {
    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// The reference to what manages this object: the first with `controller: true` (US-3.1).
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller_of(&self.owner_references)
    }

    /// Whether somebody asked for the object to go.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// The first of `references` with `controller: true`.
pub fn controller_of(references: &[OwnerReference]) -> Option<&OwnerReference> {
    references.iter().find(|reference| reference.controller == Some(true))
}

/// The managing owner of a lean object. Shared between all objects of that owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// Group and version of the owner's kind.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name.
    pub name: Arc<str>,
    /// The owner's UID.
    pub uid: Arc<str>,
    /// Whether the owner may not be gone before the object is.
    pub block_owner_deletion: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_with_unknown_fields_returns_them_and_drops_managed_fields() {
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
    fn controller_is_the_first_reference_that_says_so() {
        let reference = |name: &str, controller| OwnerReference {
            name: name.into(),
            controller,
            ..OwnerReference::default()
        };
        let references = [reference("a", None), reference("b", Some(false)), reference("c", Some(true))];
        assert_eq!(controller_of(&references).map(|r| &*r.name), Some("c"));
    }
}
