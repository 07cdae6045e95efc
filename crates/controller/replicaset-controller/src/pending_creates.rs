//! Names of pods that were requested and whose creation is not confirmed.
//!
//! A request to create a pod can fail and still take effect: the response is lost, or the API server executes the
//! request after the connection broke. The controller chooses the name of each pod, so that the request can be
//! repeated: the API server creates at most one pod of a name. A name therefore stays pending until its pod exists, and
//! the next sync that creates pods uses pending names first.
//!
//! ```text
//!  name generated ──► pending ──► 201, or 409 and the pod is ours ──► created
//!                      │  ▲   └─► in the cache ─────────────────────► created
//!                      │  └────── any other failure
//!                      └────────► 409 and the pod is not ours ──────► discarded, another name is generated
//! ```
//!
//! A rejected request leaves the name pending as well, because an earlier attempt with that name may have taken effect.
//!
//! A sync requests at most the missing pods, so a pod with a pending name is one of the missing pods. A request that is
//! executed late creates a surplus pod in three cases: the ReplicaSet was scaled down, the pod of that name was created
//! by a repetition and deleted again, or the manager has restarted, because names are not persisted. The surplus pod is
//! deleted when the watch reports it.
//!
//! DEVIATION: upstream lets the API server choose the name. It treats a request without a response as failed, and
//! relies on the watch being faster than the retry.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use kcm_api::ObjectKey;
use kcm_controller_ref_manager::OwnerIdentity;
use parking_lot::Mutex;

/// Pending names by owner. Empty unless requests are in flight or have failed.
#[derive(Debug, Default)]
pub(crate) struct PendingCreates(Mutex<HashMap<ObjectKey, Pending>>);

#[derive(Debug)]
struct Pending {
    owner_uid: Arc<str>,
    /// Sorted, so that syncs are deterministic.
    names: BTreeSet<Arc<str>>,
}

impl PendingCreates {
    /// Adds a name. Names of an earlier owner with the same key are dropped.
    pub(crate) fn insert(&self, owner: &OwnerIdentity, name: &Arc<str>) {
        let mut owners = self.0.lock();
        let fresh = || Pending { owner_uid: Arc::clone(&owner.uid), names: BTreeSet::new() };
        let pending = owners.entry(owner.key()).or_insert_with(fresh);
        if pending.owner_uid != owner.uid {
            *pending = fresh();
        }
        pending.names.insert(Arc::clone(name));
    }

    /// Removes a name: its pod exists, or the name belongs to another pod.
    pub(crate) fn remove(&self, owner: &OwnerIdentity, name: &str) {
        self.change(owner, |names| {
            names.remove(name);
        });
    }

    /// Keeps the names for which `keep` returns `true`.
    pub(crate) fn retain(&self, owner: &OwnerIdentity, keep: impl Fn(&str) -> bool) {
        self.change(owner, |names| names.retain(|name| keep(name)));
    }

    fn change(&self, owner: &OwnerIdentity, change: impl FnOnce(&mut BTreeSet<Arc<str>>)) {
        let mut owners = self.0.lock();
        if owners.is_empty() {
            return;
        }
        let key = owner.key();
        if let Some(pending) = owners.get_mut(&key) {
            change(&mut pending.names);
            if pending.names.is_empty() || pending.owner_uid != owner.uid {
                owners.remove(&key);
            }
        }
    }

    /// Returns the pending names of `owner`.
    pub(crate) fn names(&self, owner: &OwnerIdentity) -> Vec<Arc<str>> {
        let owners = self.0.lock();
        let pending = owners.get(&owner.key()).filter(|pending| pending.owner_uid == owner.uid);
        pending.map(|pending| pending.names.iter().cloned().collect()).unwrap_or_default()
    }

    /// Removes all names of an owner that was deleted.
    pub(crate) fn clear(&self, owner: &ObjectKey) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::replica_set;

    fn owner(uid: &str) -> OwnerIdentity {
        let mut metadata = replica_set("web", 1).metadata;
        metadata.uid = uid.into();
        OwnerIdentity::new("apps/v1", "ReplicaSet", &metadata)
    }

    fn names(pending: &PendingCreates, uid: &str) -> Vec<String> {
        pending.names(&owner(uid)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn name_is_pending_until_it_is_removed() {
        let pending = PendingCreates::default();
        for name in ["b", "a", "a"] {
            pending.insert(&owner("1"), &name.into());
        }
        assert_eq!(names(&pending, "1"), ["a", "b"]);
        pending.remove(&owner("1"), "b");
        assert_eq!(names(&pending, "1"), ["a"]);
        pending.retain(&owner("1"), |name| name != "a");
        assert!(pending.0.lock().is_empty());
    }

    #[test]
    fn names_belong_to_one_owner_of_a_key() {
        let pending = PendingCreates::default();
        pending.insert(&owner("1"), &"a".into());
        assert!(names(&pending, "2").is_empty());
        pending.insert(&owner("2"), &"b".into());
        assert!(names(&pending, "1").is_empty());
        assert_eq!(names(&pending, "2"), ["b"]);
        pending.clear(&owner("2").key());
        assert!(pending.0.lock().is_empty());
    }
}
