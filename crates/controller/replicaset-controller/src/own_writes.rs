//! Writes of the controller that its caches may not contain yet.

use std::sync::Arc;

use kcm_api::{ObjectKey, Pod};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_expectations::UidTrackingExpectations;
use kcm_informer::{Object, Store};
use kcm_runtime::{ConsistencyStore, GroupResource, WriteRecords};

/// Records writes until the caches contain them.
pub(crate) struct OwnWrites {
    /// Creations and deletions of pods that handlers have not observed.
    pub(crate) expectations: UidTrackingExpectations<ObjectKey, ObjectKey>,
    /// Resource versions of written objects.
    pub(crate) consistency: ConsistencyStore,
    /// Cache of pods.
    pub(crate) pods: Store<Pod>,
}

impl OwnWrites {
    /// Records the version of a pod that was created for `owner`. A webhook may have removed or replaced its owner.
    ///
    /// If the pod is awaited, its expectation ends when the cache contains the version. Otherwise, and if the version cannot
    /// be compared, only the event of the pod ends it, as upstream.
    pub(crate) fn pod_created(&self, owner: &OwnerIdentity, pod: &Pod, is_awaited: bool) {
        if self.pod_written(owner, pod) && is_awaited {
            self.expectations.creation_answered(&owner.key());
        }
    }

    /// Records the version of a pod that was written for `owner` (US-3.7). Returns `true` if it can be compared.
    pub(crate) fn pod_written(&self, owner: &OwnerIdentity, pod: &Pod) -> bool {
        let (key, version) = (owner.key(), &pod.resource_version);
        self.consistency.wrote_at(&key, Arc::clone(&owner.uid), GroupResource::PODS, version)
    }
}

/// Each creation and deletion lowers the expectations once (US-5.2).
impl WriteRecords for OwnWrites {
    fn created(&self, owner: &ObjectKey) {
        self.expectations.creation_observed(owner);
    }

    fn deleted(&self, owner: &ObjectKey, pod: &dyn Object) {
        self.expectations.deletion_observed(owner, &pod.key());
    }

    fn primary_deleted(&self, key: &ObjectKey, uid: &str) {
        self.consistency.clear(key, Some(uid));
        self.expectations.delete(key);
    }

    /// DEVIATION: upstream waits until the cache reaches the versions from before the restore.
    fn restored(&self) {
        self.consistency.clear_all();
    }

    /// Lowers expected deletions of pods that the cache does not contain. The last known state of a pod that was adopted
    /// between two lists has no owner.
    fn relisted(&self) -> Vec<ObjectKey> {
        let keys = self.expectations.unfulfilled();
        for key in &keys {
            for pod in self.expectations.pending_deletions(key) {
                if self.pods.get(&pod).is_none() {
                    self.expectations.deletion_observed(key, &pod);
                }
            }
        }
        keys
    }
}
