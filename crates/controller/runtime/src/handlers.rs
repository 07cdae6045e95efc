//! Event handlers of the watches of a [`ControllerBuilder`](crate::ControllerBuilder).

use std::sync::Arc;

use kcm_informer::{Deleted, EventHandler, Store};
use kcm_meta::{Object, ObjectKey};

use crate::{Change, ConsistencyStore, OwnedExpectations, Queue, watch::Predicate};

/// Handler that passes changes which satisfy all predicates to a mapping.
pub(crate) struct Handler<K, M> {
    pub(crate) predicates: Vec<Predicate<K>>,
    pub(crate) mapping: M,
}

/// Reaction to a change.
pub(crate) trait Mapping<K>: Send + Sync + 'static {
    /// Called for every change, also if a predicate ignores it.
    fn observe(&self, change: &Change<'_, K>) {
        let _ = change;
    }

    /// Called if the source of the objects was restored from a backup.
    fn restored(&self) {}

    /// Called after a relist.
    fn replaced(&self) {}

    /// Enqueues the keys of a change.
    fn enqueue(&self, change: &Change<'_, K>);
}

impl<K: Object, M: Mapping<K>> Handler<K, M> {
    fn handle(&self, change: &Change<'_, K>) {
        self.mapping.observe(change);
        if self.predicates.iter().all(|predicate| predicate(change)) {
            self.mapping.enqueue(change);
        }
    }
}

impl<K: Object, M: Mapping<K>> EventHandler<K> for Handler<K, M> {
    fn on_add(&self, object: &Arc<K>, _initial: bool) {
        self.handle(&Change::Added(object));
    }

    fn on_update(&self, old: &Arc<K>, new: &Arc<K>) {
        self.handle(&Change::Updated { old, new });
    }

    fn on_delete(&self, deleted: &Deleted<K>) {
        self.handle(&Change::Deleted(deleted.object()));
    }

    fn on_restore(&self) {
        self.mapping.restored();
    }

    fn on_replace(&self) {
        self.mapping.replaced();
    }
}

/// Enqueues the key of the object. Removes records about it when it is deleted.
pub(crate) struct Primary {
    pub(crate) queue: Queue,
    pub(crate) expectations: Option<Arc<OwnedExpectations>>,
    pub(crate) own_writes: Option<Arc<ConsistencyStore>>,
}

impl<K: Object> Mapping<K> for Primary {
    fn observe(&self, change: &Change<'_, K>) {
        let gone = match change {
            Change::Deleted(object) => object,
            // Deleted and created again.
            Change::Updated { old, new } if old.uid() != new.uid() => old,
            Change::Added(_) | Change::Updated { .. } => return,
        };
        if let Some(expectations) = &self.expectations {
            expectations.delete(&gone.key());
        }
        if let Some(own_writes) = &self.own_writes {
            own_writes.clear(&gone.key(), Some(gone.uid()));
        }
    }

    fn restored(&self) {
        clear(self.own_writes.as_deref());
    }

    fn enqueue(&self, change: &Change<'_, K>) {
        self.queue.add(change.object().key());
    }
}

/// Enqueues the primary object that controls the object, before and after the change.
pub(crate) struct Owned<P> {
    pub(crate) queue: Queue,
    pub(crate) primaries: Store<P>,
    pub(crate) expectations: Option<Arc<OwnedExpectations>>,
    pub(crate) own_writes: Option<Arc<ConsistencyStore>>,
}

fn clear(own_writes: Option<&ConsistencyStore>) {
    if let Some(own_writes) = own_writes {
        own_writes.clear_all();
    }
}

impl<P: Object> Owned<P> {
    /// Returns the key of the primary object that controls `object`.
    ///
    /// A primary object that the cache does not contain is enqueued when it is added. UIDs are compared, so kinds need not
    /// be.
    fn owner<K: Object>(&self, object: &K) -> Option<ObjectKey> {
        let owner = object.controller()?;
        let primaries = self.primaries.read();
        let is_owner = |key: &ObjectKey| primaries.get(key).is_some_and(|primary| primary.uid() == owner.uid);
        let namespaced = ObjectKey::new(object.key().namespace, owner.name);
        if is_owner(&namespaced) {
            return Some(namespaced);
        }
        Some(ObjectKey::new("", owner.name)).filter(is_owner)
    }
}

impl<P: Object> Owned<P> {
    /// Lowers the expectations of the owner after an object was added.
    fn added<K: Object>(&self, expectations: &OwnedExpectations, object: &K) {
        if let Some(owner) = self.owner(object) {
            expectations.creation_observed(&owner);
        }
        if object.is_being_deleted() {
            self.deleted(expectations, object);
        }
    }

    /// Lowers the expectations of the owner after the deletion of an object has started or ended, or the owner has released
    /// it.
    fn deleted<K: Object>(&self, expectations: &OwnedExpectations, object: &K) {
        if let Some(owner) = self.owner(object) {
            expectations.deletion_observed(&owner, &object.uid().into());
        }
    }
}

impl<K: Object, P: Object> Mapping<K> for Owned<P> {
    fn observe(&self, change: &Change<'_, K>) {
        let Some(expectations) = self.expectations.as_deref() else { return };
        match change {
            Change::Added(object) => self.added(expectations, &***object),
            Change::Deleted(object) => self.deleted(expectations, &***object),
            // Deleted and created again.
            Change::Updated { old, new } if old.uid() != new.uid() => {
                self.deleted(expectations, &***old);
                self.added(expectations, &***new);
            }
            Change::Updated { old, new } => {
                let uid = |object: &Arc<K>| object.controller().map(|owner| owner.uid.to_owned());
                // A terminating object is replaced without waiting for its grace period.
                if new.is_being_deleted() {
                    self.deleted(expectations, &***new);
                }
                // The event of its deletion will not name the former owner.
                if uid(old) != uid(new) {
                    self.deleted(expectations, &***old);
                }
            }
        }
    }

    fn restored(&self) {
        clear(self.own_writes.as_deref());
    }

    /// An object that was created and deleted between two lists has no event.
    fn replaced(&self) {
        for key in self.expectations.iter().flat_map(|expectations| expectations.unfulfilled()) {
            self.queue.add(key);
        }
    }

    fn enqueue(&self, change: &Change<'_, K>) {
        for owner in change.states().filter_map(|object| self.owner(&**object)) {
            self.queue.add(owner);
        }
    }
}

/// Enqueues the keys that a function returns for the states before and after the change.
pub(crate) struct Mapped<F> {
    pub(crate) queue: Queue,
    pub(crate) keys: F,
}

impl<K, F, I> Mapping<K> for Mapped<F>
where
    K: Object,
    F: Fn(&K) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = ObjectKey>,
{
    fn enqueue(&self, change: &Change<'_, K>) {
        for key in change.states().flat_map(|object| (self.keys)(object)) {
            self.queue.add(key);
        }
    }
}
