//! Creation and deletion of the objects of an owner.

mod creation;

use std::{fmt, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kcm_api::{ApiError, ObjectKey};
use kcm_clock::{Clock, Random};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_expectations::{DeletedObject, GroupResource, NotReady, OwnWrites};
use kcm_informer::{Object, Store, is_newer};

pub use creation::{CreateError, Created, Creation};

/// Creates and deletes objects of type `K` for their owners.
///
/// An object is created once, also if its cache is behind, if a response is lost, or if the sync is aborted. A sync calls
/// [`begin`](Self::begin), lists the owned objects, and creates or deletes objects if the result was `true`. The event
/// handlers share [`own_writes`](Self::own_writes); the builder of `kcm-runtime` registers them with `expectations`.
///
/// Upstream counterparts: the creations and deletions of `manageReplicas`, which use `generateName`.
pub struct OwnedObjects<K> {
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of names.
    pub random: Arc<dyn Random>,
    /// Cache of the objects.
    pub cache: Store<K>,
    /// Resource of the objects. [`OwnWrites::new`] got the cache for it.
    pub resource: GroupResource,
    /// Records of the controller.
    pub own_writes: Arc<OwnWrites>,
}

/// Result of deletions.
#[derive(Debug, Default)]
pub struct Deleted {
    /// First error.
    pub error: Option<ApiError>,
    /// `true` if an object was deleted, or did not exist any more. Its watch event starts another sync.
    pub has_events: bool,
}

impl<K: Object> OwnedObjects<K> {
    /// Begins a sync of `owner`. Returns `true` if the sync may create and delete objects.
    ///
    /// # Errors
    ///
    /// If a cache does not contain a write of an earlier sync. The sync is retried with back-off.
    pub fn begin(&self, owner: &ObjectKey) -> Result<bool, NotReady> {
        self.own_writes.begin(owner, |object| self.cache.get(object).is_some())
    }

    /// Deletes objects of `owner` concurrently. The requests are polled after the expectations are set.
    ///
    /// An object that does not exist any more is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, requests may take effect without a response. Their expectations last until they are observed
    /// or expire.
    pub async fn delete<F>(
        &self,
        owner: &OwnerIdentity,
        deletions: impl IntoIterator<Item = (Arc<K>, F)>,
    ) -> Deleted
    where
        F: Future<Output = Result<(), ApiError>>,
    {
        let key = owner.key();
        let (objects, requests): (Vec<Arc<K>>, Vec<F>) = deletions.into_iter().unzip();
        let expected = objects.iter().map(|object| DeletedObject::of(&**object));
        self.own_writes.expect_deletions(&key, &owner.uid, expected, |object, uid| {
            self.is_reported(owner, &objects, object, uid)
        });
        let request = async |object: Arc<K>, request: F| {
            let result = request.await;
            if result.is_err() {
                // A deletion that fails has no event.
                self.own_writes.observe_deletion(&key, object.uid_str());
            }
            result
        };
        let requests = objects.iter().cloned().zip(requests);
        let mut requests: FuturesUnordered<_> =
            requests.map(|(object, future)| request(object, future)).collect();
        let mut deleted = Deleted::default();
        while let Some(result) = requests.next().await {
            match result {
                Err(error) if !error.is_not_found() => deleted.error = deleted.error.or(Some(error)),
                _ => deleted.has_events = true,
            }
        }
        deleted
    }

    /// Returns `true` if the event of the deletion of an object will name `owner`.
    ///
    /// DEVIATION: upstream also waits for the deletion of an object that has lost its owner since the sync began. The event does
    /// not name the owner.
    fn is_reported(&self, owner: &OwnerIdentity, deleted: &[Arc<K>], key: &ObjectKey, uid: &str) -> bool {
        let Some(cached) = self.cache.get(key).filter(|cached| cached.uid_str() == uid) else { return false };
        // An object that this sync has adopted has no owner in the cache yet.
        let is_older = |deleted: &Arc<K>| {
            deleted.uid_str() == uid
                && !is_newer(cached.resource_version_str(), deleted.resource_version_str())
        };
        cached.controller().is_some_and(|controller| *controller.uid == *owner.uid)
            || deleted.iter().any(is_older)
    }
}

impl<K> fmt::Debug for OwnedObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedObjects").field("resource", &self.resource).finish_non_exhaustive()
    }
}
