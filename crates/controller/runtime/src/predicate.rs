//! Predicates on changes, for [`Watch::when`](crate::Watch::when).
//!
//! A predicate is any function from a [`Change`] to a `bool`. Adds and deletions satisfy those of this module: a
//! controller must process objects that it has not seen.
//!
//! Upstream counterpart: `pkg/predicate` of controller-runtime.

use kcm_meta::Object;

use crate::Change;

/// Returns a predicate that is satisfied if `value` differs between the states before and after a change.
///
/// ```
/// # use kcm_informer::{Object, SharedInformer};
/// # use kcm_runtime::{Watch, predicate};
/// # fn watch<K: Object>(pods: &SharedInformer<K>) -> Watch<K> {
/// Watch::new(pods).when(predicate::changed(|pod: &K| pod.label("app").map(str::to_owned)))
/// # }
/// ```
pub fn changed<K, V: PartialEq>(
    value: impl Fn(&K) -> V + Send + Sync + 'static,
) -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static {
    move |change| match change {
        Change::Updated { old, new } => value(old) != value(new),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

/// Returns a predicate that is satisfied unless a resync or a relist reports an unchanged object.
///
/// Upstream counterpart: `ResourceVersionChangedPredicate`.
pub fn resource_version_changed<K: Object>() -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static {
    |change| match change {
        Change::Updated { old, new } => old.resource_version() != new.resource_version(),
        Change::Added(_) | Change::Deleted(_) => true,
    }
}

/// Returns a predicate that is satisfied if `first` or `second` is.
pub fn either<K>(
    first: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
    second: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
) -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static {
    move |change| first(change) || second(change)
}

/// Returns a predicate that is satisfied if the generation changed: the specification was modified, or the deletion was
/// requested. Changes of the status and of metadata do not satisfy it.
///
/// Upstream counterpart: `GenerationChangedPredicate`.
#[cfg(feature = "kube")]
pub fn generation_changed<K: kube_core::Resource>() -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static
{
    changed(|object: &K| object.meta().generation)
}

/// Returns a predicate that is satisfied if the labels changed.
///
/// Upstream counterpart: `LabelChangedPredicate`.
#[cfg(feature = "kube")]
pub fn labels_changed<K: kube_core::Resource>() -> impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static {
    |change| match change {
        Change::Updated { old, new } => old.meta().labels != new.meta().labels,
        Change::Added(_) | Change::Deleted(_) => true,
    }
}
