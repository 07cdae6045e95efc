use std::{borrow::Cow, fmt, sync::Arc};

use kcm_api::{Deployment, ObjectKey, ObjectMeta, OwnerReference, ReplicaSet, Selector};
use kcm_meta::{Kind, Object};

/// Owner that claims objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerIdentity {
    /// Group and version of the kind.
    pub api_version: Cow<'static, str>,
    /// Kind.
    pub kind: Cow<'static, str>,
    /// Namespace. Empty for a cluster-scoped owner, which can own objects of all namespaces.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
    /// `true` if the owner is being deleted according to the cache.
    pub deleting: bool,
}

impl OwnerIdentity {
    /// Returns the identity of the object of `kind` that has `metadata`. It shares the text of `metadata`.
    pub fn new(
        api_version: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
        metadata: &ObjectMeta,
    ) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: Arc::clone(&metadata.namespace),
            name: Arc::clone(&metadata.name),
            uid: Arc::clone(&metadata.uid),
            deleting: metadata.is_being_deleted(),
        }
    }

    /// Returns the identity of `object`, of any type with a [`Kind`]: with the feature `kube` of `kcm-meta`, those of
    /// k8s-openapi and custom resources.
    pub fn of<K: Kind>(object: &K) -> Self {
        let resource = K::resource();
        Self::of_kind(resource.api_version().into_owned(), resource.kind, object)
    }

    /// Returns the identity of `object`, which is of `kind`. For types without a [`Kind`], such as `DynamicObject`.
    pub fn of_kind(
        api_version: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
        object: &impl Object,
    ) -> Self {
        let ObjectKey { namespace, name } = object.key();
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace,
            name,
            uid: object.uid_str().into(),
            deleting: object.is_being_deleted(),
        }
    }

    /// Returns the namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// Returns the owner reference of objects that this owner manages.
    ///
    /// Upstream counterpart: `metav1.NewControllerRef`.
    pub fn controller_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone().into_owned(),
            kind: self.kind.clone().into_owned(),
            name: Arc::clone(&self.name),
            uid: Arc::clone(&self.uid),
            controller: Some(true),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        }
    }
}

impl From<&ReplicaSet> for OwnerIdentity {
    fn from(replica_set: &ReplicaSet) -> Self {
        Self::new(kcm_api::replica_set::API_VERSION, kcm_api::replica_set::KIND, &replica_set.metadata)
    }
}

impl From<&Deployment> for OwnerIdentity {
    fn from(deployment: &Deployment) -> Self {
        Self::new(kcm_api::deployment::API_VERSION, kcm_api::deployment::KIND, &deployment.metadata)
    }
}

/// Decision for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The owner manages the object, and its labels match.
    Owned,
    /// Another owner manages the object.
    NotOurs,
    /// The owner manages the object, and its labels do not match.
    Release,
    /// The object is an orphan, and its labels match.
    Adopt,
    /// The object is not changed and does not belong to the owner.
    Ignore(Ignored),
}

/// Reason why an object is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The owner is being deleted. It adopts and releases nothing.
    OwnerIsBeingDeleted,
    /// The labels of the object do not match.
    NoMatch,
    /// The object is being deleted.
    ObjectIsBeingDeleted,
    /// The object is in another namespace.
    OtherNamespace,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "owned, labels match",
            Self::NotOurs => "managed by another owner",
            Self::Release => "owned, labels do not match: release",
            Self::Adopt => "orphan, labels match: adopt",
            Self::Ignore(Ignored::OwnerIsBeingDeleted) => "ignored: the owner is being deleted",
            Self::Ignore(Ignored::NoMatch) => "ignored: orphan, labels do not match",
            Self::Ignore(Ignored::ObjectIsBeingDeleted) => "ignored: orphan that is being deleted",
            Self::Ignore(Ignored::OtherNamespace) => "ignored: orphan in another namespace",
        })
    }
}

/// Decides whether `owner` adopts, keeps or releases `object` (US-3.4).
///
/// An owned object that matches remains owned while the object or the owner is being deleted.
///
/// Upstream counterpart: the decisions of `ClaimObject`.
pub fn classify(owner: &OwnerIdentity, selector: &Selector, object: &impl Object) -> Claim {
    let matches = || selector.matches_object(object);
    match object.controller().map(|controller| controller.uid) {
        Some(uid) if *uid != *owner.uid => Claim::NotOurs,
        Some(_) if matches() => Claim::Owned,
        Some(_) if owner.deleting => Claim::Ignore(Ignored::OwnerIsBeingDeleted),
        Some(_) => Claim::Release,
        None if owner.deleting => Claim::Ignore(Ignored::OwnerIsBeingDeleted),
        None if !matches() => Claim::Ignore(Ignored::NoMatch),
        None if object.is_being_deleted() => Claim::Ignore(Ignored::ObjectIsBeingDeleted),
        None if !owner.namespace.is_empty() && owner.namespace != object.key().namespace => {
            Claim::Ignore(Ignored::OtherNamespace)
        }
        None => Claim::Adopt,
    }
}
