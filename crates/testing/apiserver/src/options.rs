use crate::Selection;

/// What to do about fields that the kind does not have.
///
/// Upstream counterpart: the `fieldValidation` parameter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and send a warning.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// How a write is to be done.
///
/// Upstream counterpart: `metav1.CreateOptions`, `UpdateOptions` and `PatchOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but store the result.
    pub dry_run: bool,
    /// Who writes, for the `metadata.managedFields` of objects that have any.
    pub field_manager: Option<String>,
    /// What to do about unknown fields.
    pub field_validation: FieldValidation,
}

/// What a delete is to do about the objects that the deleted one owns.
///
/// Upstream counterpart: `metav1.DeletionPropagation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards.
    Background,
    /// The object waits until they are gone.
    Foreground,
    /// They stay, without an owner.
    Orphan,
}

/// What must hold for a delete to be done.
///
/// Upstream counterpart: `metav1.Preconditions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resource version that the object must have.
    pub resource_version: Option<String>,
}

/// How a delete is to be done.
///
/// Upstream counterpart: `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Do everything but store the result.
    pub dry_run: bool,
    /// Seconds that a pod gets to stop, instead of what its spec says. 0 removes it at once.
    pub grace_period_seconds: Option<i64>,
    /// What must hold.
    pub preconditions: Preconditions,
    /// What becomes of dependents; `None` leaves it to the object's finalizers, then to the kind.
    pub propagation: Option<Propagation>,
    /// The deprecated form of `propagation`: whether dependents are orphaned.
    pub orphan_dependents: Option<bool>,
}

impl DeleteOptions {
    /// Remove now, if it is still the object with this uid: what a kubelet sends when the containers are gone.
    pub fn now(uid: &str) -> Self {
        Self { grace_period_seconds: Some(0), ..Self::with_uid(uid) }
    }

    /// Delete if it is still the object with this uid.
    pub fn with_uid(uid: &str) -> Self {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        Self { preconditions, ..Self::default() }
    }
}

/// The form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902, a list of operations.
    Json,
    /// RFC 7396.
    Merge,
    /// Kubernetes' merge, which knows the keys of lists.
    Strategic,
}

/// A part of an object with an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subresource {
    /// `/status`: writes reach nothing but the status (and some metadata).
    Status,
    /// `/scale`: the replica count, in the same form for every kind that has one.
    Scale,
    /// `/binding`: puts a pod onto a node.
    Binding,
    /// `/eviction`: deletes a pod if disruption budgets permit.
    Eviction,
    /// `/finalize`: a namespace's finalizers.
    Finalize,
    /// `/log`: what a container wrote.
    Log,
}

impl Subresource {
    /// The last part of its path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::Log => "log",
        }
    }
}

/// How the resource version of a list is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// That very state, or 410 if it is forgotten.
    Exact,
    /// That state or any later one.
    NotOlderThan,
}

/// What to list, and from when.
///
/// Upstream counterpart: `metav1.ListOptions`.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Which objects.
    pub selection: Selection,
    /// At most how many, 0 for all.
    pub limit: usize,
    /// Where the previous page ended.
    pub continue_token: Option<String>,
    /// The state wanted, `None` and 0 for the newest.
    pub resource_version: Option<u64>,
    /// How to take `resource_version`.
    pub version_match: Option<ResourceVersionMatch>,
}
