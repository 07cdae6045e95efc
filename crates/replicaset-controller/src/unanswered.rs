//! Creations of which nobody knows whether they took effect, and how that is found out before there are others.
//!
//! A create that was sent and not answered ([`ApiError::may_have_taken_effect`]) may have made a pod that the watch has
//! yet to tell of. Pods get their names from the server, so that a second create makes a second pod.
//!
//! ```text
//!  create ──► no answer ──► the owner is marked, its expectation lowered as for any failure
//!                             │  SETTLING: what the server has begun comes to its end
//!                             ▼
//!  the next sync ──► lists the owner's pods past the cache ──► fails: back-off, then again
//!                             │  the highest version of a pod of its own, into the ConsistencyStore
//!                             ▼
//!  the cache has come to that version (at once, or after a back-off): the sync decides as always
//! ```
//!
//! It is the versions of the *pods* that are waited for, not that of the list: a watch tells of each pod as soon as it
//! can, but of a version at which nothing happened to any pod only once a minute, by a bookmark.
//!
//! Where all is well this asks nothing. An answer of 500 counts as none, even if it is a webhook's that always fails: that
//! costs one list for each retry, which come ever more slowly.
//!
//! DEVIATION: upstream takes such a create for one that failed, and relies on the watch being faster than the retry.
//!
//! *Not promised:* that a create is not carried out later than [`SETTLING`] after its connection broke, and after a
//! consistent read that was begun then. A server that is cut off from its clients and not from its storage might. The
//! surplus pod is deleted as any other when the watch tells of it.
//!
//! [`ApiError::may_have_taken_effect`]: kcm_api::ApiError::may_have_taken_effect

use std::{cmp::Ordering, collections::HashMap, sync::Arc, time::Duration};

use kcm_api::{ObjectKey, Pod, Selector};
use kcm_controller_util::{GroupResource, compare_versions};
use parking_lot::Mutex;
use tracing::debug;

use crate::{SyncError, sync::Syncer};

/// How long after a create has gone unanswered its outcome is looked for, at the earliest.
///
/// A server notices that a client has left, and gives up what it does for it, but a write that is on its way to the
/// storage arrives. That takes milliseconds. Whoever waits longer is surer, and leaves a ReplicaSet short of pods for
/// as long.
pub(crate) const SETTLING: Duration = Duration::from_secs(1);

/// The owners with unanswered creates. Nearly always none.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ObjectKey, Mark>>);

#[derive(Debug, Clone)]
struct Mark {
    owner_uid: Arc<str>,
    /// When the last one was given up, on the monotonic clock.
    since: Duration,
}

impl Unanswered {
    /// A create for this owner was given up `now`.
    pub(crate) fn mark(&self, owner: ObjectKey, owner_uid: &Arc<str>, now: Duration) {
        self.0.lock().insert(owner, Mark { owner_uid: Arc::clone(owner_uid), since: now });
    }

    /// What became of them is known, or nothing to anybody.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.0.lock().remove(owner);
    }

    fn get(&self, owner: &ObjectKey) -> Option<Mark> {
        self.0.lock().get(owner).cloned()
    }
}

impl Syncer {
    /// Finds out what became of the creates for the owner at `key` that were not answered, if there are any: afterwards
    /// the consistency store knows what the cache must have seen.
    ///
    /// # Errors
    ///
    /// When it is too early to tell, or the server cannot be asked.
    pub(crate) async fn find_out(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(Mark { owner_uid, since }) = self.unanswered.get(key) else { return Ok(()) };
        let owner = self.replica_sets.get(key);
        let owner = owner.filter(|owner| *owner.uid() == owner_uid && !owner.metadata.is_being_deleted());
        // One that is gone or going creates nothing, and one whose selector is unusable neither.
        let selector = owner.and_then(|owner| Selector::new(owner.spec.selector.as_ref()).ok());
        let Some(selector) = selector else {
            self.unanswered.forget(key);
            return Ok(());
        };
        let settled = since.saturating_add(SETTLING);
        let wait = settled.saturating_sub(self.clock.monotonic());
        if !wait.is_zero() {
            return Err(SyncError::Unanswered { wait });
        }
        let pods = self.pod_control.list_pods(&key.namespace, &selector).await.map_err(SyncError::FindOut)?;
        let newest = newest_of(&owner_uid, &pods);
        debug!(listed = pods.len(), ?newest, "Looked for the outcome of creations that were not answered");
        if let Some(version) = newest {
            self.consistency.wrote_at(key, &owner_uid, GroupResource::PODS, version);
        }
        self.unanswered.forget(key);
        Ok(())
    }
}

/// The highest version of the pods that `owner_uid` controls.
fn newest_of<'a>(owner_uid: &str, pods: &'a [Pod]) -> Option<&'a str> {
    let own = pods.iter().filter(|pod| pod.controller.as_ref().is_some_and(|owner| *owner.uid == *owner_uid));
    own.map(|pod| &*pod.resource_version).max_by(|a, b| compare_versions(a, b).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests;
