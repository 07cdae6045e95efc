//! Creation and deletion of the objects of an owner.

mod creation;

use std::{fmt, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kcm_api::{ApiError, ObjectKey};
use kcm_clock::{Clock, Random};
use kcm_expectations::{DeletedObject, GroupResource, NotReady, OwnWrites};
use kcm_informer::{Object, Store};

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
        owner: &ObjectKey,
        deletions: impl IntoIterator<Item = (DeletedObject, F)>,
    ) -> Deleted
    where
        F: Future<Output = Result<(), ApiError>>,
    {
        let (objects, requests): (Vec<_>, Vec<_>) = deletions.into_iter().unzip();
        self.own_writes
            .expect_deletions(owner, objects.iter().cloned(), |key, uid| self.cache.contains(key, uid));
        let request = async |object: DeletedObject, request: F| {
            let result = request.await;
            if result.is_err() {
                // A deletion that fails has no event.
                self.own_writes.observe_deletion(owner, &object.uid);
            }
            result
        };
        let requests = objects.into_iter().zip(requests);
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
}

impl<K> fmt::Debug for OwnedObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedObjects").field("resource", &self.resource).finish_non_exhaustive()
    }
}
