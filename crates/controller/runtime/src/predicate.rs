//! Predicates on changes, for [`Watch::when`](crate::Watch::when).
//!
//! A predicate is any function from a [`Change`] to a `bool`. Adds and deletions satisfy those of this module: a
//! controller must process objects that it has not seen.
//!
//! Upstream counterpart: `pkg/predicate` of controller-runtime.

use kcm_meta::Object;

use crate::Change;

/// Returns a predicate that is satisfied unless a resync or a relist reports an unchanged object.
///
/// Upstream counterpart: `ResourceVersionChangedPredicate`.
pub fn resource_version_changed<K: Object>() -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static {
    |change| match change {
        Change::Updated { old, new } => old.resource_version_str() != new.resource_version_str(),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}
