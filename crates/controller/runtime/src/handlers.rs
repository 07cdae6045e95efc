//! Event handlers of the watches of a [`ControllerBuilder`](crate::ControllerBuilder).

use std::sync::Arc;

use kcm_informer::{Deleted, EventHandler, Store};
use kcm_meta::{Object, ObjectKey};
use tracing::trace;

use crate::{
    Change, Queue, Watch, WriteRecords, owner_of,
    watch::{Orphans, Predicate},
};

/// Records that the handlers of a controller update.
pub(crate) type Records = Vec<Arc<dyn WriteRecords>>;

/// Handler that passes changes which satisfy all predicates to a mapping.
struct Handler<K, M> {
    predicates: Vec<Predicate<K>>,
    mapping: M,
}

/// Reaction to a change.
trait Mapping<K>: Send + Sync + 'static {
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

/// Returns the handler of [`ControllerBuilder::reconciles`](crate::ControllerBuilder::reconciles).
///
/// Public for the tests of controllers.
#[doc(hidden)]
pub fn primary_handler<K: Object>(
    watch: Watch<K>,
    queue: Queue,
    records: Vec<Arc<dyn WriteRecords>>,
) -> Arc<dyn EventHandler<K>> {
    Arc::new(Handler { predicates: watch.predicates, mapping: Primary { queue, records } })
}

/// Returns the handler of [`ControllerBuilder::owns`](crate::ControllerBuilder::owns).
///
/// Public for the tests of controllers.
#[doc(hidden)]
pub fn owned_handler<K: Object, P: Object>(
    watch: Watch<K>,
    primaries: Store<P>,
    queue: Queue,
    records: Vec<Arc<dyn WriteRecords>>,
) -> Arc<dyn EventHandler<K>> {
    let mapping = Owned { queue, primaries, orphans: watch.orphans, records };
    Arc::new(Handler { predicates: watch.predicates, mapping })
}

/// Returns the handler of [`ControllerBuilder::watches`](crate::ControllerBuilder::watches).
///
/// Public for the tests of controllers.
#[doc(hidden)]
pub fn mapped_handler<K: Object, I: IntoIterator<Item = ObjectKey> + 'static>(
    watch: Watch<K>,
    keys: impl Fn(&K) -> I + Send + Sync + 'static,
    queue: Queue,
) -> Arc<dyn EventHandler<K>> {
    Arc::new(Handler { predicates: watch.predicates, mapping: Mapped { queue, keys } })
}

/// Enqueues the key of the object. Removes records about it when it is deleted.
struct Primary {
    queue: Queue,
    records: Records,
}

impl<K: Object> Mapping<K> for Primary {
    fn observe(&self, change: &Change<'_, K>) {
        let gone = match change {
            Change::Deleted(object) => object,
            // Deleted and created again.
            Change::Updated { old, new } if old.uid() != new.uid() => old,
            Change::Added(_) | Change::Updated { .. } => return,
        };
        for records in &self.records {
            records.primary_deleted(&gone.key(), gone.uid());
        }
    }

    fn restored(&self) {
        restored(&self.records);
    }

    fn enqueue(&self, change: &Change<'_, K>) {
        let object = change.object();
        trace!(object = %object.key(), uid = object.uid(), "Object {}", change.verb());
        self.queue.add(object.key());
    }
}

/// Enqueues the primary object that controls the object, before and after the change, and those that may adopt it.
struct Owned<K, P> {
    queue: Queue,
    primaries: Store<P>,
    orphans: Option<Orphans<K>>,
    records: Records,
}

fn restored(records: &Records) {
    for records in records {
        records.restored();
    }
}

impl<K: Object, P: Object> Owned<K, P> {
    fn added(&self, object: &K) {
        if object.is_being_deleted() {
            // After a restart, a list may contain an object that is already being deleted.
            self.deleted(object);
        } else if let Some(owner) = owner_of(&self.primaries, object) {
            for records in &self.records {
                records.created(&owner.key());
            }
        }
    }

    fn deleted(&self, object: &K) {
        if let Some(owner) = owner_of(&self.primaries, object) {
            for records in &self.records {
                records.deleted(&owner.key(), object);
            }
        }
    }
}

impl<K: Object, P: Object> Mapping<K> for Owned<K, P> {
    fn observe(&self, change: &Change<'_, K>) {
        if self.records.is_empty() {
            return;
        }
        match change {
            Change::Added(object) => self.added(object),
            Change::Deleted(object) => self.deleted(object),
            // Deleted and created again.
            //
            // DEVIATION: upstream does not compare UIDs.
            Change::Updated { old, new } if old.uid() != new.uid() => {
                self.deleted(old);
                self.added(new);
            }
            // A resync.
            Change::Updated { old, new } if old.resource_version() == new.resource_version() => {}
            Change::Updated { old, new } => {
                // A terminating object is replaced without waiting for its grace period.
                if new.is_being_deleted() {
                    self.deleted(new);
                }
                // DEVIATION: upstream does not lower the expectation of the former owner. The event of the deletion does
                // not name it, and it would wait until the expectation expires.
                if old.controller().map(|owner| owner.uid) != new.controller().map(|owner| owner.uid) {
                    self.deleted(old);
                }
            }
        }
    }

    fn restored(&self) {
        restored(&self.records);
    }

    /// DEVIATION: if an object was created or adopted, and deleted, between two lists, upstream waits until the expectations
    /// expire, or until the progress deadline.
    fn replaced(&self) {
        for key in self.records.iter().flat_map(|records| records.relisted()) {
            self.queue.add(key);
        }
    }

    fn enqueue(&self, change: &Change<'_, K>) {
        let former = match change {
            Change::Updated { old, new } if old.controller() != new.controller() => Some(*old),
            _ => None,
        };
        for object in former.into_iter().chain([change.object()]) {
            if let Some(owner) = owner_of(&self.primaries, &**object) {
                trace!(owner = %owner.key(), object = %object.key(), "Owned object {}", change.verb());
                self.queue.add(owner.key());
            }
        }
        for key in self.orphans.iter().flat_map(|orphans| orphans(change)) {
            trace!(owner = %key, object = %change.object().key(), "Orphan {}", change.verb());
            self.queue.add(key);
        }
    }
}

/// Enqueues the keys that a function returns for the states before and after the change.
struct Mapped<F> {
    queue: Queue,
    keys: F,
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
