//! Watched informers.

use std::{fmt, sync::Arc};

use kcm_informer::SharedInformer;
use kcm_meta::{Object, ObjectKey};

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
    pub(crate) orphans: Option<Orphans<K>>,
    pub(crate) urgent: Option<Predicate<K>>,
}

pub(crate) type Predicate<K> = Box<dyn Fn(&Change<'_, K>) -> bool + Send + Sync>;

/// Returns the keys of the primary objects that may adopt the object after a change.
pub(crate) type Orphans<K> = Box<dyn Fn(&Change<'_, K>) -> Vec<ObjectKey> + Send + Sync>;

impl<K: Object> Watch<K> {
    /// Returns a watch of all changes.
    pub fn new(informer: &SharedInformer<K>) -> Self {
        Self { informer: informer.clone(), predicates: Vec::new(), orphans: None, urgent: None }
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

    /// Enqueues the owner before others if `predicate` returns `true` for a change.
    ///
    /// While urgent keys wait, every second key that workers take is another one. It applies to
    /// [`ControllerBuilder::owns`](crate::ControllerBuilder::owns).
    #[must_use]
    pub fn urgent(mut self, predicate: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        self.urgent = Some(Box::new(predicate));
        self
    }

    /// Enqueues the primary objects that may adopt an orphan: the keys that `adopters` returns for it.
    ///
    /// It is called when an object without a controller is added, after an object has lost its controller, and when the
    /// `labels` of an orphan have changed, unless the object is being deleted. It applies to
    /// [`ControllerBuilder::owns`](crate::ControllerBuilder::owns).
    #[must_use]
    pub fn orphans<L: PartialEq + ?Sized + 'static>(
        mut self,
        labels: fn(&K) -> &L,
        adopters: impl Fn(&K) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.orphans = Some(Box::new(move |change| {
            let object = change.object();
            let is_new = match change {
                Change::Added(_) => true,
                Change::Updated { old, new } => {
                    old.uid_str() != new.uid_str() || old.controller().is_some() || labels(old) != labels(new)
                }
                Change::Deleted(_) => false,
            };
            if is_new && object.controller().is_none() && !object.is_being_deleted() {
                adopters(object)
            } else {
                Vec::new()
            }
        }));
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

    /// Returns the participle of the change for log messages.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Updated { .. } => "updated",
            Self::Deleted(_) => "deleted",
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
