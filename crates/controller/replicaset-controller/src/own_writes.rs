//! Writes of the controller that its caches may not contain yet.

use std::sync::Arc;

use kcm_api::{ObjectKey, Pod};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_expectations::UidTrackingExpectations;
use kcm_runtime::{ConsistencyStore, GroupResource};

/// Records writes until the caches contain them.
pub(crate) struct OwnWrites {
    /// Creations and deletions of pods that handlers have not observed.
    pub(crate) expectations: UidTrackingExpectations<ObjectKey, ObjectKey>,
    /// Resource versions of written objects.
    pub(crate) consistency: ConsistencyStore,
}

impl OwnWrites {
    /// Records the version of a pod that the API server returned, if `owner` manages the pod (US-3.7).
    pub(crate) fn pod_written(&self, owner: &OwnerIdentity, pod: &Pod) {
        if pod.controller.as_ref().is_some_and(|controller| controller.uid == owner.uid) {
            let (key, version) = (owner.key(), &pod.resource_version);
            self.consistency.wrote_at(&key, Arc::clone(&owner.uid), GroupResource::PODS, version);
        }
    }
}
