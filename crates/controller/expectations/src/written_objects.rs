//! Objects that the API server returned, until the caches contain them.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap, hash_map::Entry},
    fmt,
    sync::Arc,
};

use kcm_meta::{Object, ObjectKey, is_newer};
use parking_lot::Mutex;

/// Objects that the API server returned, of any types, until the caches contain them.
///
/// DEVIATION: upstream's controllers read their caches only. A sync that starts before the cache contains the writes of the
/// last one sends the same update or create again, and fails with 409.
///
/// The lock is not contended for one owner: it has one sync at a time.
#[derive(Default)]
pub struct WrittenObjects(Mutex<HashMap<ObjectKey, Written>>);

/// Writes of one owner.
#[derive(Default)]
struct Written {
    objects: Vec<Arc<dyn Any + Send + Sync>>,
    unobserved: Vec<Sent>,
}

/// Write that another controller has not observed yet.
struct Sent {
    key: ObjectKey,
    uid: Arc<str>,
}

impl Written {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.unobserved.is_empty()
    }

    fn of_type<K: Object>(&self) -> impl Iterator<Item = Arc<K>> {
        self.objects.iter().filter_map(|object| Arc::clone(object).downcast().ok())
    }

    /// Removes the objects of type `K` for which `keep` returns `false`.
    fn retain<K: Object>(&mut self, keep: impl Fn(&K) -> bool) {
        self.objects.retain(|object| object.downcast_ref().is_none_or(&keep));
    }
}

impl WrittenObjects {
    /// Stores an object that the API server returned for a write of `owner`, or `owner` itself.
    pub fn wrote<K: Object>(&self, owner: &ObjectKey, object: &Arc<K>) {
        let mut owners = self.0.lock();
        let written = owners.entry(owner.clone()).or_default();
        written.retain::<K>(|other| other.uid_str() != object.uid_str());
        written.objects.push(Arc::clone(object) as _);
    }

    /// Records that `object` was sent, with or without a response, and that another controller must observe the write.
    pub fn sent<K: Object>(&self, owner: &ObjectKey, object: &K) {
        let mut owners = self.0.lock();
        let unobserved = &mut owners.entry(owner.clone()).or_default().unobserved;
        if !unobserved.iter().any(|sent| *sent.uid == *object.uid_str()) {
            unobserved.push(Sent { key: object.key(), uid: object.uid_str().into() });
        }
    }

    /// Returns the UIDs of [sent](Self::sent) objects, if the cache did not report them as observed at the last call of
    /// [`overlay`](Self::overlay).
    pub fn unobserved(&self, owner: &ObjectKey) -> BTreeSet<Arc<str>> {
        let owners = self.0.lock();
        let sent = owners.get(owner).map_or(&[][..], |written| &written.unobserved);
        sent.iter().map(|sent| Arc::clone(&sent.uid)).collect()
    }

    /// Removes the record that the object with `uid` was [sent](Self::sent): another write has replaced it.
    pub fn replaced(&self, owner: &ObjectKey, uid: &str) {
        self.change(owner, |written| written.unobserved.retain(|sent| *sent.uid != *uid));
    }

    /// Removes an object that does not exist any more.
    pub fn gone<K: Object>(&self, owner: &ObjectKey, object: &ObjectKey) {
        self.change(owner, |written| written.retain::<K>(|other| other.key() != *object));
    }

    /// Returns the newer of the cached object and the stored one. An object with another UID is removed.
    pub fn newest<K: Object>(&self, owner: &ObjectKey, cached: Arc<K>) -> Arc<K> {
        let newest = self.change(owner, |written| {
            let is_newest = |object: &K| {
                object.uid_str() == cached.uid_str()
                    && is_newer(object.resource_version_str(), cached.resource_version_str())
            };
            written.retain::<K>(|object| object.key() != cached.key() || is_newest(object));
            written.of_type::<K>().find(|object| is_newest(object))
        });
        newest.flatten().unwrap_or(cached)
    }

    /// Adds the stored objects of type `K` to `objects`, which were read from the cache.
    ///
    /// Each UID and each name is then contained once, in the newer of the cached version and the stored one. A stored object
    /// replaces a cached one with the same name and another UID.
    ///
    /// `cached` returns an object of the cache, and `seen` is the version of the cache. `is_observed` returns `true` if the
    /// cached state of a [sent](Self::sent) object shows that the other controller has observed the write.
    pub fn overlay<'c, K: Object>(
        &self,
        owner: &ObjectKey,
        objects: &mut Vec<Arc<K>>,
        cached: impl Fn(&ObjectKey) -> Option<&'c Arc<K>>,
        seen: Option<&str>,
        is_observed: impl Fn(&K) -> bool,
    ) {
        self.change(owner, |written| {
            written.retain::<K>(|object| match cached(&object.key()) {
                Some(cached) => is_newer(object.resource_version_str(), cached.resource_version_str()),
                // If the cache is newer than the write, the object was deleted since.
                None => seen.is_none_or(|seen| is_newer(object.resource_version_str(), seen)),
            });
            let stored: Vec<Arc<K>> = written.of_type().collect();
            written.unobserved.retain(|sent| {
                // Only the cache counts: the other controller reads it as well.
                let cached = cached(&sent.key).filter(|object| *object.uid_str() == *sent.uid);
                stored.iter().any(|object| *object.uid_str() == *sent.uid)
                    || cached.is_some_and(|object| !is_observed(object))
            });
            for object in stored {
                match objects.iter_mut().find(|cached| cached.key() == object.key()) {
                    Some(cached) => *cached = object,
                    None => objects.push(object),
                }
            }
        });
    }

    /// Returns the owners with objects of type `K`.
    pub(crate) fn owners<K: Object>(&self) -> Vec<ObjectKey> {
        let owners = self.0.lock();
        let waiting =
            owners.iter().filter(|(_, written)| written.objects.iter().any(|object| object.is::<K>()));
        waiting.map(|(key, _)| key.clone()).collect()
    }

    /// Removes all objects of `owner`.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.0.lock().remove(owner);
    }

    /// Removes all objects.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns `true` if no object is stored.
    pub fn is_empty(&self) -> bool {
        self.0.lock().values().all(Written::is_empty)
    }

    /// Changes the writes of `owner`, if there are any.
    fn change<T>(&self, owner: &ObjectKey, change: impl FnOnce(&mut Written) -> T) -> Option<T> {
        let mut owners = self.0.lock();
        let Entry::Occupied(mut entry) = owners.entry(owner.clone()) else { return None };
        let result = change(entry.get_mut());
        if entry.get().is_empty() {
            entry.remove();
        }
        Some(result)
    }
}

impl fmt::Debug for WrittenObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}
