//! Deletes what nobody owns any more.
//!
//! The rules are those of kube-controller-manager's garbage collector. Its graph, its live look-ups and its
//! periodic sync are not needed: the server is in this process and can say which objects name an owner, and
//! whether an owner is still there.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use kcm_apiserver::{ApiStatus, Object, OwnerReference, Propagation};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::{
    api::{Api, Change},
    pace::Pace,
};

/// The finalizer of an owner that waits for its dependents to be gone.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are to be let go.
const ORPHAN: &str = "orphan";

/// How long a change rests before it is acted on.
///
/// A controller that owns pods learns from one watch that its object is gone, and from another that the pods go. The
/// real collector is slow enough for the first to arrive before the second; one in the same process would have
/// ReplicaSets replace pods that are collected with them.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// UIDs of what to look at, in the order in which it came up, each once.
    queue: VecDeque<String>,
    queued: HashSet<String>,
}

/// How the owners of an object stand.
#[derive(Debug, Default)]
struct Owners<'a> {
    /// There, and not waiting for the object to go.
    solid: usize,
    /// UIDs of owners that wait for the object to go.
    waiting: Vec<&'a str>,
    /// UIDs of owners that are not there.
    dangling: Vec<&'a str>,
}

impl GarbageCollector {
    /// Collects until the server is gone.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        while let Some(change) = changes.next().await {
            self.see(&api, &change);
            if !self.queue.is_empty() {
                api.sleep(PAUSE).await;
                changes.pace().rested();
                changes.rest(|change| self.see(&api, change)).await;
            }
            while let Some(uid) = self.queue.pop_front() {
                changes.pace().spend(1).await;
                self.queued.remove(&uid);
                let Some(object) = api.by_uid(&uid) else { continue };
                if let Err(error) = self.attend(&api, &object, changes.pace()).await {
                    // Somebody was faster, and the watch will tell; anything else is worth knowing.
                    if error.is_conflict() || error.is_not_found() {
                        debug!(?object, %error, "object changed while it was looked at");
                    } else {
                        warn!(?object, %error, "cannot collect");
                    }
                }
            }
        }
    }

    fn enqueue(&mut self, uid: &str) {
        if self.queued.insert(uid.to_owned()) {
            self.queue.push_back(uid.to_owned());
        }
    }

    fn see(&mut self, api: &Api, change: &Change) {
        let object = &change.object;
        // An owner may have waited for this one to go, or not to block it any more.
        let before = change.old.as_ref().or(change.gone.then_some(object));
        for owner in before.into_iter().flat_map(|before| before.owner_references()) {
            if change.gone || !object.owner_references().any(|reference| reference == owner) {
                self.enqueue(owner.uid);
            }
        }
        if change.gone {
            for dependent in api.dependents(object.uid()) {
                self.enqueue(dependent.uid());
            }
        } else if waits_with(object, FOREGROUND)
            || waits_with(object, ORPHAN)
            || object.owner_references().next().is_some()
        {
            self.enqueue(object.uid());
        }
    }

    async fn attend(&mut self, api: &Api, object: &Object, pace: &mut Pace) -> Result<(), ApiStatus> {
        if waits_with(object, ORPHAN) {
            return Self::orphan_dependents(api, object, pace).await;
        }
        if waits_with(object, FOREGROUND) {
            return self.delete_dependents(api, object);
        }
        if object.is_deleting() || object.owner_references().next().is_none() {
            return Ok(());
        }
        Self::collect(api, object)
    }

    /// An owned object: let go of owners that are gone, and go with the last.
    fn collect(api: &Api, object: &Object) -> Result<(), ApiStatus> {
        let owners = Owners::of(api, object);
        if owners.solid > 0 {
            let superfluous: Vec<&str> = owners.dangling.iter().chain(&owners.waiting).copied().collect();
            return if superfluous.is_empty() { Ok(()) } else { drop_owners(api, object, &superfluous) };
        }
        let dependents = api.dependents(object.uid());
        let propagation = if !owners.waiting.is_empty() && !dependents.is_empty() {
            // A dependent that waits, too, may be an owner of the owner: a circle, in which each would wait for the next.
            if dependents.iter().any(|dependent| waits_with(dependent, FOREGROUND)) {
                unblock_owners(api, object)?;
            }
            Propagation::Foreground
        } else if object.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if object.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        debug!(?object, ?propagation, "no owner left");
        api.delete(object, propagation)
    }

    /// An owner in foreground deletion: it goes once nobody that blocks it is left.
    fn delete_dependents(&mut self, api: &Api, owner: &Object) -> Result<(), ApiStatus> {
        let dependents = api.dependents(owner.uid());
        let blocks = |dependent: &Arc<Object>| {
            dependent.owner_references().any(|r| r.uid == owner.uid() && r.block_owner_deletion)
        };
        if !dependents.iter().any(blocks) {
            return drop_finalizer(api, owner, FOREGROUND);
        }
        // One that waits for its own dependents comes up again when they are gone.
        for dependent in dependents.iter().filter(|dependent| !waits_with(dependent, FOREGROUND)) {
            self.enqueue(dependent.uid());
        }
        Ok(())
    }

    /// An owner whose dependents are to stay: it lets go of each, then of itself.
    async fn orphan_dependents(api: &Api, owner: &Object, pace: &mut Pace) -> Result<(), ApiStatus> {
        for dependent in api.dependents(owner.uid()) {
            pace.spend(1).await;
            drop_owners(api, &dependent, &[owner.uid()])?;
        }
        drop_finalizer(api, owner, ORPHAN)
    }
}

impl<'a> Owners<'a> {
    fn of(api: &Api, object: &'a Object) -> Self {
        let mut owners = Self::default();
        for reference in object.owner_references() {
            match find_owner(api, object, &reference) {
                None => owners.dangling.push(reference.uid),
                Some(owner) if waits_with(&owner, FOREGROUND) => owners.waiting.push(reference.uid),
                Some(_) => owners.solid += 1,
            }
        }
        owners
    }
}

/// The owner that `reference` names, if it is there. One in another namespace counts as absent, and so does one
/// in any namespace for an object that is in none.
fn find_owner(api: &Api, object: &Object, reference: &OwnerReference<'_>) -> Option<Arc<Object>> {
    api.by_uid(reference.uid)
        .filter(|owner| owner.namespace().is_empty() || owner.namespace() == object.namespace())
}

fn waits_with(object: &Object, finalizer: &str) -> bool {
    object.is_deleting() && object.has_finalizer(finalizer)
}

/// Lets the owners of `object` go before `object`.
///
/// Upstream counterpart: `node.unblockOwnerReferencesPatch`.
fn unblock_owners(api: &Api, object: &Object) -> Result<(), ApiStatus> {
    let blocked = object.owner_references().filter(|reference| reference.block_owner_deletion);
    let references: Value = blocked.map(|r| json!({ "uid": r.uid, "blockOwnerDeletion": false })).collect();
    if references == json!([]) {
        return Ok(());
    }
    api.patch(object, &json!({ "metadata": { "uid": object.uid(), "ownerReferences": references } }))
}

fn drop_owners(api: &Api, object: &Object, uids: &[&str]) -> Result<(), ApiStatus> {
    let references: Value = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid })).collect();
    api.patch(object, &json!({ "metadata": { "uid": object.uid(), "ownerReferences": references } }))
}

fn drop_finalizer(api: &Api, object: &Object, name: &str) -> Result<(), ApiStatus> {
    let patch = json!({ "metadata": { "uid": object.uid(), "$deleteFromPrimitiveList/finalizers": [name] } });
    api.patch(object, &patch)
}
