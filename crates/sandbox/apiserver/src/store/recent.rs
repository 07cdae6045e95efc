//! Decoded forms of recently used objects.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{Object, object::Version};

/// Maximum number of objects, and of bytes of their JSON texts. A decoded object takes five to ten times the size of its
/// text.
const OBJECTS: usize = 256;
const BYTES: usize = 512 << 10;

/// Objects that were written or read most recently. All readers of a version share its decoded form while it is here.
#[derive(Default)]
pub(super) struct Recent(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// By revision, which identifies a version.
    objects: HashMap<u64, Arc<Object>>,
    /// Revisions in order of insertion.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Recent {
    /// Returns the object of a version, and keeps it.
    pub(super) fn get(&self, version: &Arc<Version>) -> Arc<Object> {
        if let Some(found) = self.0.lock().find(version) {
            return found;
        }
        let object = Arc::new(Object::new(Arc::clone(version)));
        self.insert(&object);
        object
    }

    /// As [`get`](Self::get). The object is not kept: for reads of many objects.
    pub(super) fn peek(&self, version: &Arc<Version>) -> Arc<Object> {
        let found = self.0.lock().find(version);
        found.unwrap_or_else(|| Arc::new(Object::new(Arc::clone(version))))
    }

    /// Keeps `object` until [`OBJECTS`] others were inserted.
    pub(super) fn insert(&self, object: &Arc<Object>) {
        let evicted = self.0.lock().insert(object);
        // Deallocated after the lock is released.
        drop(evicted);
    }
}

impl Queue {
    fn find(&self, version: &Arc<Version>) -> Option<Arc<Object>> {
        let found = self.objects.get(&version.revision())?;
        // After a failed write to disk, another version has the same revision.
        Arc::ptr_eq(found.version(), version).then(|| Arc::clone(found))
    }

    fn insert(&mut self, object: &Arc<Object>) -> Vec<Arc<Object>> {
        self.bytes += object.size();
        let mut evicted = Vec::new();
        match self.objects.insert(object.revision(), Arc::clone(object)) {
            None => self.order.push_back(object.revision()),
            Some(replaced) => evicted.push(replaced),
        }
        self.bytes -= evicted.iter().map(|object| object.size()).sum::<usize>();
        while self.order.len() > OBJECTS || self.bytes > BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(object) = self.objects.remove(&oldest) {
                self.bytes -= object.size();
                evicted.push(object);
            }
        }
        evicted
    }
}
