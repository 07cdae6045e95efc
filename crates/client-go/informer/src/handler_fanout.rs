use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kcm_meta::{Object, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    handler::{Deleted, EventHandler},
    index::Indexers,
    metrics::InformerMetrics,
    store::{Snapshot, Store, StoreWriter},
};

/// Writes changes to the store and calls the handlers.
///
/// One lock covers the change of the store, the calls of the handlers, and the registration of handlers. Each handler
/// therefore gets the state at its registration as adds, and then every later change once and in order.
///
/// Upstream counterpart: `sharedProcessor`, together with `sharedIndexInformer.handleDeltas`.
pub(crate) struct HandlerFanout<K> {
    name: String,
    metrics: Arc<dyn InformerMetrics>,
    store: Store<K>,
    synced: watch::Sender<bool>,
    locked: Mutex<Locked<K>>,
}

struct Locked<K> {
    writer: StoreWriter<K>,
    handlers: Vec<Registered<K>>,
}

struct Registered<K> {
    handler: Arc<dyn EventHandler<K>>,
    synced: Arc<AtomicBool>,
}

/// Registration of a handler. Dropping it does not remove the handler.
///
/// Upstream counterpart: `cache.ResourceEventHandlerRegistration`.
#[derive(Debug)]
pub struct HandlerRegistration {
    /// Shared with the [`HandlerFanout`]. Its address identifies the handler.
    synced: Arc<AtomicBool>,
}

impl HandlerRegistration {
    /// Returns `true` if the handler has received the state at its registration, or the first complete state of the
    /// informer, whichever is later.
    pub fn has_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }
}

impl<K: Object> HandlerFanout<K> {
    pub(crate) fn new(name: String, metrics: Arc<dyn InformerMetrics>, writer: StoreWriter<K>) -> Self {
        Self {
            name,
            metrics,
            store: writer.reader(),
            synced: watch::Sender::new(false),
            locked: Mutex::new(Locked { writer, handlers: Vec::new() }),
        }
    }

    pub(crate) fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Returns a receiver of `true` once the handlers have received the first complete state.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Adds a handler, and calls it for each object in the store.
    pub(crate) fn add(&self, handler: Arc<dyn EventHandler<K>>) -> HandlerRegistration {
        let mut locked = self.locked.lock();
        for object in self.store.list() {
            handler.on_add(&object, true);
        }
        let synced = Arc::new(AtomicBool::new(self.store.is_synced()));
        locked.handlers.push(Registered { handler, synced: Arc::clone(&synced) });
        HandlerRegistration { synced }
    }

    pub(crate) fn add_indexers(&self, indexers: Indexers<K>) {
        self.locked.lock().writer.add_indexers(indexers);
    }

    /// Removes a handler.
    pub(crate) fn remove(&self, registration: &HandlerRegistration) {
        let mut locked = self.locked.lock();
        locked.handlers.retain(|registered| !Arc::ptr_eq(&registered.synced, &registration.synced));
    }

    /// Stores an object that was added or modified.
    pub(crate) fn apply(&self, object: K) {
        let object = Arc::new(object);
        let mut locked = self.locked.lock();
        let old = locked.writer.apply(Arc::clone(&object));
        locked.call_each(|handler| match &old {
            Some(old) => handler.on_update(old, &object),
            None => handler.on_add(&object, false),
        });
        self.report_change(object.resource_version_str());
    }

    /// Removes an object that was deleted; `last` is its final state.
    ///
    /// Handlers are not called for an object that the store does not have.
    pub(crate) fn delete(&self, last: K) {
        let last = Arc::new(last);
        let mut locked = self.locked.lock();
        let cached = locked.writer.remove(&last.key(), Some(last.resource_version_str()));
        if cached.is_some() {
            let deleted = Deleted::FinalState(Arc::clone(&last));
            locked.call_each(|handler| handler.on_delete(&deleted));
        }
        self.report_change(last.resource_version_str());
    }

    /// Removes a deleted object without a final state, because that cannot be decoded.
    pub(crate) fn delete_final_state_unknown(&self, key: &ObjectKey, resource_version: Option<&str>) {
        let mut locked = self.locked.lock();
        if let Some(cached) = locked.writer.remove(key, resource_version) {
            let deleted = Deleted::FinalStateUnknown(cached);
            locked.call_each(|handler| handler.on_delete(&deleted));
        }
        self.report_change(resource_version.unwrap_or_default());
    }

    /// Records that there were no further changes in `namespace` up to `resource_version`. `None`: in any namespace.
    pub(crate) fn bookmark(&self, namespace: Option<&str>, resource_version: &str) {
        self.locked.lock().writer.bookmark_in(namespace, resource_version);
        self.report_change(resource_version);
    }

    pub(crate) fn snapshot(&self, namespace: Option<Arc<str>>) -> Snapshot<K> {
        self.locked.lock().writer.snapshot_of(namespace)
    }

    /// Replaces the state of the store, then calls the handlers: for the deletions first, then for all other objects of
    /// the snapshot (US-2.1). An unchanged object is an update, as upstream. `initial` is `true` for the first state.
    ///
    /// A lower version than before is reported first.
    pub(crate) fn replace(&self, snapshot: Snapshot<K>, resource_version: &str, initial: bool) {
        let mut locked = self.locked.lock();
        let replaced = locked.writer.commit(snapshot, resource_version);
        if replaced.is_restore {
            tracing::warn!(
                informer = self.name,
                resourceVersion = resource_version,
                "List is older than the state before; the API server was restored from a backup"
            );
            locked.call_each(EventHandler::on_restore);
        }
        for object in replaced.deleted {
            let deleted = Deleted::FinalStateUnknown(object);
            locked.call_each(|handler| handler.on_delete(&deleted));
        }
        for (old, object) in &replaced.present {
            locked.call_each(|handler| match old {
                Some(old) => handler.on_update(old, object),
                None => handler.on_add(object, initial),
            });
        }
        locked.call_each(EventHandler::on_replace);
        let is_synced = self.store.is_synced();
        if is_synced {
            for registered in &locked.handlers {
                registered.synced.store(true, Ordering::Release);
            }
        }
        self.report_change(resource_version);
        self.synced.send_replace(is_synced);
    }

    /// Calls the handlers with an update for every object (US-2.1).
    pub(crate) fn resync(&self) {
        let locked = self.locked.lock();
        for object in self.store.list() {
            locked.call_each(|handler| handler.on_update(&object, &object));
        }
    }

    fn report_change(&self, resource_version: &str) {
        self.metrics.store_changed(&self.name, self.store.len(), resource_version);
    }
}

impl<K> Locked<K> {
    fn call_each(&self, call: impl Fn(&dyn EventHandler<K>)) {
        for registered in &self.handlers {
            call(&*registered.handler);
        }
    }
}
