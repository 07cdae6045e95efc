//! Watched informers.

use std::{fmt, sync::Arc};

use kcm_informer::SharedInformer;
use kcm_meta::Object;

/// Informer whose changes enqueue keys, with predicates on the changes.
///
/// A reference to a [`SharedInformer`] converts into a watch without predicates.
///
/// ```
/// # use kcm_informer::{Object, SharedInformer};
/// # use kcm_runtime::{Watch, predicate};
/// # fn watch<K: Object>(websites: &SharedInformer<K>) -> Watch<K> {
/// // Ignores resyncs.
/// Watch::new(websites).when(predicate::resource_version_changed())
/// # }
/// ```
pub struct Watch<K> {
    pub(crate) informer: SharedInformer<K>,
    pub(crate) predicates: Vec<Predicate<K>>,
}

pub(crate) type Predicate<K> = Box<dyn Fn(&Change<'_, K>) -> bool + Send + Sync>;

impl<K: Object> Watch<K> {
    /// Returns a watch of all changes.
    pub fn new(informer: &SharedInformer<K>) -> Self {
        Self { informer: informer.clone(), predicates: Vec::new() }
    }

    /// Ignores changes for which `predicate` returns `false`. With several predicates, all must return `true`.
    ///
    /// It is called on the task of the informer and must not block. [`predicate`](crate::predicate) has predicates for
    /// common cases.
    ///
    /// Upstream counterpart: `builder.WithPredicates` of controller-runtime.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }
}

impl<K: Object> From<&SharedInformer<K>> for Watch<K> {
    fn from(informer: &SharedInformer<K>) -> Self {
        Self::new(informer)
    }
}

impl<K: Object> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("informer", &self.informer.name())
            .field("predicates", &self.predicates.len())
            .finish()
    }
}

/// Change of an object, as an informer reports it.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// The object was added, or existed when the controller was built.
    Added(&'a Arc<K>),
    /// The object was modified. Both states are the same after a resync or a relist.
    Updated {
        /// State before the change.
        old: &'a Arc<K>,
        /// State after the change.
        new: &'a Arc<K>,
    },
    /// The object was deleted. Contains its last known state.
    Deleted(&'a Arc<K>),
}

impl<'a, K> Change<'a, K> {
    /// Returns the state after the change, or the last known state of a deleted object.
    pub fn object(&self) -> &'a Arc<K> {
        match self {
            Self::Added(object) | Self::Updated { new: object, .. } | Self::Deleted(object) => object,
        }
    }

    /// Returns the state before the change, unless the object was added.
    pub fn old(&self) -> Option<&'a Arc<K>> {
        match self {
            Self::Added(_) => None,
            Self::Updated { old, .. } | Self::Deleted(old) => Some(old),
        }
    }

    /// Returns the states before and after the change that differ from each other: both of an update, else one.
    pub(crate) fn states(&self) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        let old = match self {
            Self::Updated { old, .. } => Some(*old),
            Self::Added(_) | Self::Deleted(_) => None,
        };
        old.into_iter().chain([self.object()])
    }
}
