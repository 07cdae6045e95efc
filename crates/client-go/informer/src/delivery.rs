use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kcm_api::ObjectKey;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Deleted, EventHandler, InformerMetrics, Object, Snapshot, Store, StoreWriter};

/// Changes the store and tells the handlers, as one: nobody joins, and no other change happens, in between.
///
/// This is what gives every handler, whenever it joins, a gapless account: the state at one moment as adds, then
/// every change from that moment on, once, in order.
pub(crate) struct Delivery<K> {
    name: String,
    metrics: Arc<dyn InformerMetrics>,
    store: Store<K>,
    synced: watch::Sender<bool>,
    inside: Mutex<Inside<K>>,
}

struct Inside<K> {
    writer: StoreWriter<K>,
    handlers: Vec<Registered<K>>,
}

struct Registered<K> {
    handler: Arc<dyn EventHandler<K>>,
    synced: Arc<AtomicBool>,
}

/// A handler's place among those of an informer. Dropping it leaves the handler where it is.
///
/// Upstream counterpart: `cache.ResourceEventHandlerRegistration`.
#[derive(Debug)]
pub struct HandlerRegistration {
    /// Shared with the delivery; which allocation it is tells which handler is meant.
    synced: Arc<AtomicBool>,
}

impl HandlerRegistration {
    /// Whether the handler has been told of everything that was there when it, or the informer, began.
    pub fn has_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }
}

impl<K: Object> Delivery<K> {
    pub(crate) fn new(name: String, metrics: Arc<dyn InformerMetrics>, writer: StoreWriter<K>) -> Self {
        Self {
            name,
            metrics,
            store: writer.reader(),
            synced: watch::Sender::new(false),
            inside: Mutex::new(Inside { writer, handlers: Vec::new() }),
        }
    }

    pub(crate) fn store(&self) -> &Store<K> {
        &self.store
    }

    /// True once the first complete state is in the store and the handlers know of it.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn join(&self, handler: Arc<dyn EventHandler<K>>) -> HandlerRegistration {
        let mut inside = self.inside.lock();
        for object in self.store.list() {
            handler.on_add(&object, true);
        }
        let synced = Arc::new(AtomicBool::new(self.store.is_synced()));
        inside.handlers.push(Registered { handler, synced: Arc::clone(&synced) });
        HandlerRegistration { synced }
    }

    pub(crate) fn leave(&self, registration: &HandlerRegistration) {
        let is_it = |registered: &Registered<K>| Arc::ptr_eq(&registered.synced, &registration.synced);
        self.inside.lock().handlers.retain(|registered| !is_it(registered));
    }

    /// An object is new or has changed.
    pub(crate) fn apply(&self, object: K) {
        let object = Arc::new(object);
        let mut inside = self.inside.lock();
        let old = inside.writer.apply(Arc::clone(&object));
        inside.each(|handler| match &old {
            Some(old) => handler.on_update(old, &object),
            None => handler.on_add(&object, false),
        });
        self.report(object.resource_version());
    }

    /// An object is gone, and `last` is its last state.
    ///
    /// What the store does not know is nobody's loss: it was reported already.
    pub(crate) fn remove(&self, last: K) {
        let last = Arc::new(last);
        let mut inside = self.inside.lock();
        let known = inside.writer.remove(&last.key(), Some(last.resource_version()));
        if known.is_some() {
            let deleted = Deleted::Seen(Arc::clone(&last));
            inside.each(|handler| handler.on_delete(&deleted));
        }
        self.report(last.resource_version());
    }

    /// The object at `key` is gone, and its last state is not known.
    pub(crate) fn remove_unseen(&self, key: &ObjectKey, resource_version: Option<&str>) {
        let mut inside = self.inside.lock();
        if let Some(known) = inside.writer.remove(key, resource_version) {
            let deleted = Deleted::Unseen(known);
            inside.each(|handler| handler.on_delete(&deleted));
        }
        self.report(resource_version.unwrap_or_default());
    }

    /// Nothing that the store could show happened up to this version.
    pub(crate) fn bookmark(&self, resource_version: &str) {
        self.inside.lock().writer.bookmark(resource_version);
        self.report(resource_version);
    }

    pub(crate) fn snapshot(&self) -> Snapshot<K> {
        self.inside.lock().writer.snapshot()
    }

    /// Makes `snapshot` the state: first the store as a whole, then the deletions, then the rest (US-2.1).
    ///
    /// An unchanged object is told as an update, as upstream does.
    pub(crate) fn replace(&self, snapshot: Snapshot<K>, resource_version: &str) {
        let mut inside = self.inside.lock();
        let initial = !self.store.is_synced();
        let replaced = inside.writer.commit(snapshot, resource_version);
        for object in replaced.deleted {
            let deleted = Deleted::Unseen(object);
            inside.each(|handler| handler.on_delete(&deleted));
        }
        for (old, object) in &replaced.present {
            inside.each(|handler| match old {
                Some(old) => handler.on_update(old, object),
                None => handler.on_add(object, initial),
            });
        }
        inside.each(EventHandler::on_replace);
        for registered in &inside.handlers {
            registered.synced.store(true, Ordering::Release);
        }
        self.report(resource_version);
        self.synced.send_replace(true);
    }

    /// Tells every object again (US-2.1).
    pub(crate) fn resync(&self) {
        let inside = self.inside.lock();
        for object in self.store.list() {
            inside.each(|handler| handler.on_update(&object, &object));
        }
    }

    fn report(&self, resource_version: &str) {
        self.metrics.store_changed(&self.name, self.store.len(), resource_version);
    }
}

impl<K> Inside<K> {
    fn each(&self, tell: impl Fn(&dyn EventHandler<K>)) {
        for registered in &self.handlers {
            tell(&*registered.handler);
        }
    }
}
