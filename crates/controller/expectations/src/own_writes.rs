//! All records of a controller's own writes.

use std::{
    borrow::Borrow,
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use kcm_clock::Clock;
use kcm_meta::{Object, ObjectKey};
use parking_lot::Mutex;

use crate::{
    ConsistencyStore, GroupResource, MissingObjects, NotReady, PendingNames, ReadVersion,
    UidTrackingExpectations, WrittenObjects,
};

/// Object of an expected deletion.
///
/// DEVIATION: it is identified by its UID, and not by namespace and name as upstream: another object of the same name is not
/// awaited.
#[derive(Debug, Clone)]
pub struct DeletedObject {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
}

impl DeletedObject {
    /// Returns the identity of `object`.
    pub fn of(object: &impl Object) -> Self {
        Self { key: object.key(), uid: object.uid_str().into() }
    }
}

impl PartialEq for DeletedObject {
    fn eq(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

impl Eq for DeletedObject {}

impl Hash for DeletedObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uid.hash(state);
    }
}

impl Borrow<str> for DeletedObject {
    fn borrow(&self) -> &str {
        &self.uid
    }
}

impl fmt::Display for DeletedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// Own writes of one controller, by the key of the object that it syncs.
///
/// The [crate documentation](crate) has the order of the calls. All methods are short and do not wait.
#[derive(Debug)]
pub struct OwnWrites {
    /// Creations and deletions that events have not reported.
    pub expectations: UidTrackingExpectations<ObjectKey, DeletedObject>,
    /// Resource versions of written objects.
    pub versions: ConsistencyStore,
    /// Names of creations without a known result.
    pub names: PendingNames,
    /// Objects that the API server returned.
    pub objects: WrittenObjects,
    /// Owners that a write has not found.
    pub missing: MissingObjects,
    /// UIDs of the owners that were deleted since the last sync of their key began.
    deleted_owners: Mutex<HashMap<ObjectKey, Arc<str>>>,
}

impl OwnWrites {
    /// Returns empty records. Syncs wait for versions of the resources of `caches`.
    pub fn new(
        clock: Arc<dyn Clock>,
        caches: impl IntoIterator<Item = (GroupResource, ReadVersion)>,
    ) -> Self {
        Self {
            expectations: UidTrackingExpectations::new(Arc::clone(&clock)),
            versions: ConsistencyStore::new(caches),
            names: PendingNames::default(),
            objects: WrittenObjects::default(),
            missing: MissingObjects::new(clock),
            deleted_owners: Mutex::default(),
        }
    }

    /// Begins a sync of `owner`. Returns `true` if the sync may create and delete objects.
    ///
    /// `is_cached` returns `true` if the cache of the created objects contains the key. Everything else, such as the status
    /// and finalizers, does not depend on the result.
    ///
    /// # Errors
    ///
    /// If a cache does not contain a write of an earlier sync. The sync is retried with back-off.
    pub fn begin(&self, owner: &ObjectKey, is_cached: impl Fn(&ObjectKey) -> bool) -> Result<bool, NotReady> {
        self.deleted_owners.lock().remove(owner);
        self.versions.ensure_ready(owner)?;
        // The caches contain the versions of all creations that the API server has confirmed.
        self.expectations.observe_answered_creations(owner);
        let is_satisfied = self.expectations.satisfied(owner);
        self.names.retain(owner, |name| {
            !is_cached(&ObjectKey { namespace: Arc::clone(&owner.namespace), name: Arc::clone(name) })
        });
        Ok(is_satisfied)
    }

    /// Returns `true` if no sync depends on a record: all expectations are fulfilled, the caches contain all written versions,
    /// and no names, objects or missing owners are stored. For debugging and tests.
    pub fn is_settled(&self) -> bool {
        self.expectations.unfulfilled().is_empty()
            && self.versions.all_ready()
            && self.names.is_empty()
            && self.objects.is_empty()
            && self.missing.is_empty()
    }

    /// Removes the records of an owner that does not exist any more.
    pub fn forget(&self, owner: &ObjectKey) {
        self.versions.clear(owner, None);
        self.expectations.delete(owner);
        self.names.clear(owner, None);
        self.objects.forget(owner);
        self.missing.remove(owner);
        self.deleted_owners.lock().remove(owner);
    }

    /// Records `version` of an object that was created for `owner`, as the API server returned it.
    ///
    /// If the object is awaited, its expectation ends when the cache contains the version. Otherwise, and if the version
    /// cannot be compared, only its event ends it, as upstream.
    pub fn created(
        &self,
        owner: &ObjectKey,
        owner_uid: &Arc<str>,
        resource: GroupResource,
        version: &str,
        is_awaited: bool,
    ) {
        if self.versions.wrote_at(owner, Arc::clone(owner_uid), resource, version) && is_awaited {
            self.expectations.creation_answered(owner);
        }
    }

    /// Expects `count` creations of objects of `owner`, and nothing else. Call it before the first request.
    pub fn expect_creations(&self, owner: &ObjectKey, owner_uid: &str, count: usize) {
        self.expectations.expect_creations(owner, count);
        self.expect_nothing_if_deleted(owner, owner_uid);
    }

    /// Removes the expectations of an owner that was deleted during its sync: the events of its objects are not assigned to
    /// another owner of its name. Called after they are set, so that a deletion that is observed meanwhile is not missed.
    ///
    /// DEVIATION: upstream's expectations of the deleted owner hold for the new one until they expire.
    fn expect_nothing_if_deleted(&self, owner: &ObjectKey, owner_uid: &str) {
        if self.deleted_owners.lock().get(owner).is_some_and(|deleted| **deleted == *owner_uid) {
            self.expectations.delete(owner);
        }
    }

    /// Expects the deletions of `objects` of `owner`, and nothing else. Call it before the first request.
    ///
    /// `is_cached` returns `true` if the cache contains the object with this key and UID. The deletion of another object was
    /// handled before this call: its event will not come, and a request for its name may delete its successor.
    pub fn expect_deletions(
        &self,
        owner: &ObjectKey,
        owner_uid: &str,
        objects: impl IntoIterator<Item = DeletedObject>,
        is_cached: impl Fn(&ObjectKey, &str) -> bool,
    ) {
        self.expectations.expect_deletions(owner, objects);
        // After the expectations are set, so that a deletion that is handled meanwhile is not missed.
        self.observe_deletions_of_missing(owner, is_cached);
        self.expect_nothing_if_deleted(owner, owner_uid);
    }

    fn observe_deletions_of_missing(&self, owner: &ObjectKey, is_cached: impl Fn(&ObjectKey, &str) -> bool) {
        for object in self.expectations.pending_deletions(owner) {
            if !is_cached(&object.key, &object.uid) {
                self.expectations.deletion_observed(owner, &object);
            }
        }
    }

    /// Records that an object of `owner` was added to the cache.
    pub fn observe_creation(&self, owner: &ObjectKey) {
        self.expectations.creation_observed(owner);
    }

    /// Records that the deletion of the object of `owner` with this UID has started or ended, or that `owner` has released it.
    ///
    /// A deletion starts when the deletion timestamp is set: the object is replaced without waiting for its grace period.
    pub fn observe_deletion(&self, owner: &ObjectKey, uid: &str) {
        self.expectations.deletion_observed(owner, uid);
    }

    /// Records that the owner at `key` with this UID was deleted.
    pub fn observe_owner_deletion(&self, owner: &ObjectKey, uid: &str) {
        // Before the expectations are deleted, which a sync may set again.
        self.deleted_owners.lock().insert(owner.clone(), uid.into());
        self.versions.clear(owner, Some(uid));
        self.expectations.delete(owner);
        self.names.clear(owner, Some(uid));
        self.missing.remove(owner);
    }

    /// Records that a cache was restored from a backup. Its versions may never reach those of earlier writes.
    ///
    /// DEVIATION: upstream waits until the cache reaches the versions from before the restore.
    pub fn observe_restore(&self) {
        self.versions.clear_all();
        self.objects.clear();
        self.missing.clear();
    }

    /// Records that the objects of type `K` were listed again. Returns the keys to sync: an object that was created and
    /// deleted between two lists has no event.
    ///
    /// `is_cached` returns `true` if the cache contains the object with this key and UID. Expected deletions of other objects
    /// are observed: the last known state of an object that was adopted between two lists has no owner. For the same reason,
    /// owners with writes that no sync has found in the caches are returned.
    pub fn observe_relist<K: Object>(&self, is_cached: impl Fn(&ObjectKey, &str) -> bool) -> Vec<ObjectKey> {
        let mut owners = self.expectations.unfulfilled();
        for owner in &owners {
            self.observe_deletions_of_missing(owner, &is_cached);
        }
        owners.extend(self.objects.owners::<K>());
        owners.extend(self.versions.owners());
        owners
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    #[test]
    fn records_are_settled_when_no_sync_depends_on_one() {
        let version: ReadVersion = Arc::new(|| Some("5".to_owned()));
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let own_writes = OwnWrites::new(clock, [(GroupResource::PODS, version)]);
        let (owner, uid) = (ObjectKey::new("default", "web"), Arc::from("u"));
        assert!(own_writes.is_settled());

        own_writes.expectations.expect_creations(&owner, 1);
        assert!(!own_writes.is_settled());
        own_writes.observe_creation(&owner);
        assert!(own_writes.is_settled());

        own_writes.created(&owner, &uid, GroupResource::PODS, "5", false);
        assert!(own_writes.is_settled(), "the cache contains the version");
        own_writes.created(&owner, &uid, GroupResource::PODS, "6", false);
        assert!(!own_writes.is_settled());
        own_writes.forget(&owner);
        assert!(own_writes.is_settled());

        own_writes.names.requested(&owner, &uid, &"web-1".into(), std::time::Duration::ZERO);
        assert!(!own_writes.is_settled());
        own_writes.names.remove(&owner, "web-1");
        assert!(own_writes.is_settled());
    }

    #[test]
    fn owner_that_is_deleted_during_its_sync_leaves_no_expectations_to_its_successor() {
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let own_writes = OwnWrites::new(clock, []);
        let owner = ObjectKey::new("default", "web");
        let pod = || DeletedObject { key: ObjectKey::new("default", "web-1"), uid: "p".into() };
        let is_cached = |_: &ObjectKey, _: &str| true;
        let begin = || own_writes.begin(&owner, |_| false).unwrap();

        assert!(begin());
        own_writes.observe_owner_deletion(&owner, "old");
        own_writes.expect_deletions(&owner, "old", [pod()], is_cached);
        assert!(begin(), "after deletions");

        own_writes.observe_owner_deletion(&owner, "old");
        own_writes.expect_creations(&owner, "old", 1);
        assert!(begin(), "after creations");

        own_writes.expect_deletions(&owner, "new", [pod()], is_cached);
        assert!(!begin(), "the successor awaits its own deletions");
        own_writes.observe_owner_deletion(&owner, "new");
        assert!(begin());
    }
}
