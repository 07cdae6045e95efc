use crate::{Selection, User};

/// Handling of fields that the kind does not have.
///
/// Upstream counterpart: the query parameter `fieldValidation`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop unknown fields.
    Ignore,
    /// Drop unknown fields and return a warning.
    #[default]
    Warn,
    /// Reject the request.
    Strict,
}

/// Options of a create, update or patch.
///
/// Upstream counterpart: `metav1.CreateOptions`, `UpdateOptions` and `PatchOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// If `true`, the result is computed but not stored.
    pub dry_run: bool,
    /// Name of the writer in `metadata.managedFields`.
    pub field_manager: Option<String>,
    /// Handling of unknown fields.
    pub field_validation: FieldValidation,
    /// User of the request. `None` for writes within the process.
    pub user: Option<User>,
}

/// Handling of the dependents of a deleted object.
///
/// Upstream counterpart: `metav1.DeletionPropagation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionPropagation {
    /// The garbage collector deletes the dependents afterwards.
    Background,
    /// The object stays until its dependents are deleted.
    Foreground,
    /// The dependents stay and lose their owner reference.
    Orphan,
}

/// Conditions that the object must meet to be deleted.
///
/// Upstream counterpart: `metav1.Preconditions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Required UID.
    pub uid: Option<String>,
    /// Required resource version.
    pub resource_version: Option<String>,
}

/// Options of a delete.
///
/// Upstream counterpart: `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// If `true`, the result is computed but not stored.
    pub dry_run: bool,
    /// Seconds between the deletion and the removal of a pod. Overrides the pod's spec. 0 removes the pod immediately.
    pub grace_period_seconds: Option<i64>,
    /// Preconditions.
    pub preconditions: Preconditions,
    /// Handling of dependents. If `None`, the object's finalizers decide, then the default of the kind.
    pub propagation: Option<DeletionPropagation>,
    /// Deprecated form of `propagation`: `true` orphans the dependents.
    pub orphan_dependents: Option<bool>,
}

impl DeleteOptions {
    /// Immediate removal of the object with this UID, as sent by a kubelet whose containers have stopped.
    pub fn now(uid: &str) -> Self {
        Self { grace_period_seconds: Some(0), ..Self::with_uid(uid) }
    }

    /// Deletion of the object with this UID.
    pub fn with_uid(uid: &str) -> Self {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        Self { preconditions, ..Self::default() }
    }
}

/// Format of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7396).
    Merge,
    /// Strategic merge patch: lists of objects are merged by key.
    Strategic,
}

/// Interpretation of the resource version of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// Exactly this state. If it is no longer in the history, the list fails with 410.
    Exact,
    /// This state or a later one.
    NotOlderThan,
}

/// Options of a list.
///
/// Upstream counterpart: `metav1.ListOptions`.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Label and field selectors.
    pub selection: Selection,
    /// Maximum number of objects. 0 means no limit.
    pub limit: usize,
    /// Token of the next page, from the previous page.
    pub continue_token: Option<String>,
    /// Requested revision. `None` and 0 mean the latest.
    pub resource_version: Option<u64>,
    /// Interpretation of `resource_version`.
    pub version_match: Option<ResourceVersionMatch>,
}
