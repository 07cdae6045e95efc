//! Records of a controller's own writes.

use kcm_meta::{Object, ObjectKey};

use crate::{ConsistencyStore, OwnedExpectations};

/// Records that a controller keeps of its own writes. The handlers of its watches update them before they add keys to the
/// queue.
///
/// All methods do nothing by default. They are called on the task of an informer and must not block.
pub trait WriteRecords: Send + Sync + 'static {
    /// An object that `owner` controls was added to the cache.
    fn created(&self, owner: &ObjectKey) {
        let _ = owner;
    }

    /// The deletion of an object that `owner` controls has started or ended, or the owner has released the object.
    ///
    /// A deletion starts when the deletion timestamp is set. Called several times for one object.
    fn deleted(&self, owner: &ObjectKey, object: &dyn Object) {
        let _ = (owner, object);
    }

    /// The primary object at `key` with this UID was deleted.
    fn primary_deleted(&self, key: &ObjectKey, uid: &str) {
        let _ = (key, uid);
    }

    /// The source of the objects was restored from a backup. Its versions may never reach those of earlier writes.
    fn restored(&self) {}

    /// The owned objects were listed again. Returns the keys to reconcile.
    ///
    /// An object that was created and deleted between two lists has no event.
    fn relisted(&self) -> Vec<ObjectKey> {
        Vec::new()
    }
}

impl WriteRecords for OwnedExpectations {
    fn created(&self, owner: &ObjectKey) {
        self.creation_observed(owner);
    }

    fn deleted(&self, owner: &ObjectKey, object: &dyn Object) {
        self.deletion_observed(owner, &object.uid().into());
    }

    fn primary_deleted(&self, key: &ObjectKey, _uid: &str) {
        self.delete(key);
    }

    fn relisted(&self) -> Vec<ObjectKey> {
        self.unfulfilled()
    }
}

impl WriteRecords for ConsistencyStore {
    fn primary_deleted(&self, key: &ObjectKey, uid: &str) {
        self.clear(key, Some(uid));
    }

    fn restored(&self) {
        self.clear_all();
    }
}
