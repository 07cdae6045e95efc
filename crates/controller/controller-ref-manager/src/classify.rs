use std::{fmt, sync::Arc};

use kcm_api::{Deployment, Labels, ObjectKey, ObjectMeta, OwnerReference, ReplicaSet, Selector};

/// The owner that claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerIdentity {
    /// Group and version of its kind.
    pub api_version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Where it is; empty for an owner that lives in no namespace and so may own things in all of them.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// Whether somebody asked for it to go, as far as the cache knows.
    pub deleting: bool,
}

impl OwnerIdentity {
    /// The owner of `kind` that `metadata` belongs to.
    pub fn new(api_version: &'static str, kind: &'static str, metadata: &ObjectMeta) -> Self {
        Self {
            api_version,
            kind,
            namespace: Arc::clone(&metadata.namespace),
            name: Arc::clone(&metadata.name),
            uid: Arc::clone(&metadata.uid),
            deleting: metadata.is_being_deleted(),
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// The reference that makes this the managing owner of the object which carries it.
    ///
    /// Upstream counterpart: `metav1.NewControllerRef`.
    pub fn controller_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.to_owned(),
            kind: self.kind.to_owned(),
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

/// What a decision looks at in an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectView<'a> {
    /// Where it is.
    pub namespace: &'a str,
    /// What it is chosen by.
    pub labels: &'a Labels,
    /// The UID of the owner that manages it, if any.
    pub controller_uid: Option<&'a str>,
    /// Whether somebody asked for it to go.
    pub deleting: bool,
}

/// What to do about one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is ours and stays so.
    Owned,
    /// It belongs to somebody else.
    NotOurs,
    /// It is ours, and its labels say that it should no longer be.
    Release,
    /// It is nobody's, and its labels say that it should be ours.
    Adopt,
    /// Nothing is to be done, and it does not count as ours.
    Ignore(Ignored),
}

/// Why an object is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The owner is going: it takes in nothing any more, and lets go of nothing.
    OwnerIsBeingDeleted,
    /// The object's labels do not match.
    NoMatch,
    /// The object is going.
    ObjectIsBeingDeleted,
    /// The object is in another namespace than the owner.
    OtherNamespace,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owned => "owned, and its labels match",
            Self::NotOurs => "managed by another owner",
            Self::Release => "owned, but its labels no longer match: to be released",
            Self::Adopt => "an orphan whose labels match: to be adopted",
            Self::Ignore(Ignored::OwnerIsBeingDeleted) => "left alone: the owner is being deleted",
            Self::Ignore(Ignored::NoMatch) => "left alone: an orphan whose labels do not match",
            Self::Ignore(Ignored::ObjectIsBeingDeleted) => "left alone: an orphan that is being deleted",
            Self::Ignore(Ignored::OtherNamespace) => "left alone: an orphan in another namespace",
        })
    }
}

/// What `owner` with `selector` is to do about `object` (US-3.4).
///
/// What is ours and matches stays ours even while it or its owner is being deleted.
pub fn classify(owner: &OwnerIdentity, selector: &Selector, object: ObjectView<'_>) -> Claim {
    let matches = || selector.matches(object.labels);
    match object.controller_uid {
        Some(uid) if *uid != *owner.uid => Claim::NotOurs,
        Some(_) if matches() => Claim::Owned,
        Some(_) if owner.deleting => Claim::Ignore(Ignored::OwnerIsBeingDeleted),
        Some(_) => Claim::Release,
        None if owner.deleting => Claim::Ignore(Ignored::OwnerIsBeingDeleted),
        None if !matches() => Claim::Ignore(Ignored::NoMatch),
        None if object.deleting => Claim::Ignore(Ignored::ObjectIsBeingDeleted),
        None if !owner.namespace.is_empty() && *owner.namespace != *object.namespace => {
            Claim::Ignore(Ignored::OtherNamespace)
        }
        None => Claim::Adopt,
    }
}
