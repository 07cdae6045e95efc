//! Event handlers of the watches of a [`ControllerBuilder`](crate::ControllerBuilder).

use std::sync::Arc;

use kcm_informer::{Deleted, EventHandler, Store};
use kcm_meta::{Object, ObjectKey};
use tracing::trace;

use crate::{
    Change, KeyQueue, OwnWrites, Watch, owner_of,
    watch::{Orphans, Predicate},
};

/// Handler that checks the predicates of a watch.
struct Handler<K, M> {
    predicates: Vec<Predicate<K>>,
    mapping: M,
}

/// Reaction to a change.
trait Mapping<K>: Send + Sync + 'static {
    /// Updates the records of own writes, and enqueues the keys of the change if all predicates are satisfied.
    fn handle(&self, change: &Change<'_, K>, is_satisfied: bool);

    /// Called if the source of the objects was restored from a backup.
    fn restored(&self) {}

    /// Called after a relist.
    fn replaced(&self) {}
}

impl<K: Object, M: Mapping<K>> Handler<K, M> {
    fn handle(&self, change: &Change<'_, K>) {
        let is_satisfied = self.predicates.iter().all(|predicate| predicate(change));
        self.mapping.handle(change, is_satisfied);
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
    queue: KeyQueue,
    own_writes: Option<Arc<OwnWrites>>,
) -> Arc<dyn EventHandler<K>> {
    Arc::new(Handler { predicates: watch.predicates, mapping: Primary { queue, own_writes } })
}

/// Returns the handler of [`ControllerBuilder::owns`](crate::ControllerBuilder::owns).
///
/// Public for the tests of controllers.
#[doc(hidden)]
pub fn owned_handler<K: Object, P: Object>(
    watch: Watch<K>,
    objects: Store<K>,
    primaries: Store<P>,
    queue: KeyQueue,
    own_writes: Option<Arc<OwnWrites>>,
) -> Arc<dyn EventHandler<K>> {
    let Watch { predicates, orphans, urgent, .. } = watch;
    let mapping = Owned { queue, objects, primaries, orphans, urgent, own_writes };
    Arc::new(Handler { predicates, mapping })
}

/// Returns the handler of [`ControllerBuilder::watches`](crate::ControllerBuilder::watches).
///
/// Public for the tests of controllers.
#[doc(hidden)]
pub fn mapped_handler<K: Object, I: IntoIterator<Item = ObjectKey> + 'static>(
    watch: Watch<K>,
    keys: impl Fn(&K) -> I + Send + Sync + 'static,
    queue: KeyQueue,
) -> Arc<dyn EventHandler<K>> {
    Arc::new(Handler { predicates: watch.predicates, mapping: Mapped { queue, keys } })
}

/// Enqueues the key of the object. Removes records about it when it is deleted.
struct Primary {
    queue: KeyQueue,
    own_writes: Option<Arc<OwnWrites>>,
}

impl<K: Object> Mapping<K> for Primary {
    fn handle(&self, change: &Change<'_, K>, is_satisfied: bool) {
        let gone = match change {
            Change::Deleted(object) => Some(object),
            // Deleted and created again.
            Change::Updated { old, new } if old.uid_str() != new.uid_str() => Some(old),
            Change::Added(_) | Change::Updated { .. } => None,
        };
        if let (Some(own_writes), Some(gone)) = (&self.own_writes, gone) {
            own_writes.observe_owner_deletion(&gone.key(), gone.uid_str());
        }
        if is_satisfied {
            let object = change.object();
            trace!(object = %object.key(), uid = object.uid_str(), "Object {}", change.verb());
            self.queue.add(object.key());
        }
    }

    fn restored(&self) {
        if let Some(own_writes) = &self.own_writes {
            own_writes.observe_restore();
        }
    }
}

/// Enqueues the primary object that controls the object, before and after the change, and those that may adopt it.
struct Owned<K, P> {
    queue: KeyQueue,
    objects: Store<K>,
    primaries: Store<P>,
    orphans: Option<Orphans<K>>,
    urgent: Option<Predicate<K>>,
    own_writes: Option<Arc<OwnWrites>>,
}

impl<K: Object, P: Object> Owned<K, P> {
    fn owner_key(&self, object: &K) -> Option<ObjectKey> {
        owner_of(&self.primaries, object).map(|owner| owner.key())
    }
}

/// Updates `own_writes` with a change of an object. `former` is the owner before the change, if it was another one or the
/// object was replaced.
fn observe<K: Object>(
    own_writes: &OwnWrites,
    change: &Change<'_, K>,
    former: Option<&ObjectKey>,
    owner: Option<&ObjectKey>,
) {
    let deleted = |owner: Option<&ObjectKey>, object: &K| {
        if let Some(owner) = owner {
            own_writes.observe_deletion(owner, object.uid_str());
        }
    };
    let added = |object: &K| match owner {
        // After a restart, a list may contain an object that is already being deleted.
        _ if object.is_being_deleted() => deleted(owner, object),
        Some(owner) => own_writes.observe_creation(owner),
        None => {}
    };
    match change {
        Change::Added(object) => added(object),
        Change::Deleted(object) => deleted(owner, object),
        // Deleted and created again.
        //
        // DEVIATION: upstream does not compare UIDs.
        Change::Updated { old, new } if old.uid_str() != new.uid_str() => {
            deleted(former, old);
            added(new);
        }
        Change::Updated { old, new } => {
            // A terminating object is replaced without waiting for its grace period.
            if new.is_being_deleted() {
                deleted(owner, new);
            }
            // DEVIATION: upstream does not lower the expectation of the former owner. The event of the deletion does not
            // name it, and it would wait until the expectation expires.
            if old.controller().map(|owner| owner.uid) != new.controller().map(|owner| owner.uid) {
                deleted(former, old);
            }
        }
    }
}

impl<K: Object, P: Object> Mapping<K> for Owned<K, P> {
    fn handle(&self, change: &Change<'_, K>, is_satisfied: bool) {
        let is_resync = matches!(change, Change::Updated { old, new }
            if old.uid_str() == new.uid_str() && old.resource_version_str() == new.resource_version_str());
        let own_writes = self.own_writes.as_ref().filter(|_| !is_resync);
        if own_writes.is_none() && !is_satisfied {
            return;
        }
        let former = match change {
            Change::Updated { old, new }
                if old.uid_str() != new.uid_str() || old.controller() != new.controller() =>
            {
                self.owner_key(old)
            }
            _ => None,
        };
        let owner = self.owner_key(change.object());
        if let Some(own_writes) = own_writes {
            observe(own_writes, change, former.as_ref(), owner.as_ref());
        }
        if !is_satisfied {
            return;
        }
        let is_urgent = self.urgent.as_ref().is_some_and(|is_urgent| is_urgent(change));
        for owner in former.into_iter().chain(owner) {
            trace!(%owner, object = %change.object().key(), "Owned object {}", change.verb());
            if is_urgent {
                self.queue.add_urgent(owner);
            } else {
                self.queue.add(owner);
            }
        }
        for key in self.orphans.iter().flat_map(|orphans| orphans(change)) {
            trace!(owner = %key, object = %change.object().key(), "Orphan {}", change.verb());
            self.queue.add(key);
        }
    }

    fn restored(&self) {
        if let Some(own_writes) = &self.own_writes {
            own_writes.observe_restore();
        }
    }

    /// DEVIATION: if an object was created or adopted, and deleted, between two lists, upstream waits until the expectations
    /// expire, or until the progress deadline.
    fn replaced(&self) {
        let Some(own_writes) = &self.own_writes else { return };
        for owner in own_writes.observe_relist::<K>(|key, uid| self.objects.contains(key, uid)) {
            self.queue.add(owner);
        }
    }
}

/// Enqueues the keys that a function returns for the states before and after the change.
struct Mapped<F> {
    queue: KeyQueue,
    keys: F,
}

impl<K, F, I> Mapping<K> for Mapped<F>
where
    K: Object,
    F: Fn(&K) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = ObjectKey>,
{
    fn handle(&self, change: &Change<'_, K>, is_satisfied: bool) {
        if !is_satisfied {
            return;
        }
        for key in change.states().flat_map(|object| (self.keys)(object)) {
            self.queue.add(key);
        }
    }
}
