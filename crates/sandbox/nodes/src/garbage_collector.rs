//! Simulated garbage collector.
//!
//! The rules are those of kube-controller-manager's garbage collector. The object graph, the live lookups and the
//! periodic resync of upstream are not needed: the embedded API server indexes owners and dependents.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use kcm_apiserver::{ApiStatus, DeletionPropagation, Object, OwnerReference};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::{
    api::{Api, Change},
    yield_budget::YieldBudget,
};

/// Finalizer of an owner that waits until its dependents are deleted.
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner that orphans its dependents.
const ORPHAN: &str = "orphan";

/// Delay between a change and its processing.
///
/// A controller receives the deletion of its object and the deletion of its pods from two watches. Upstream's garbage
/// collector is slow enough that the first arrives earlier. Without a delay, ReplicaSets would replace collected pods.
const DELAY: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// UIDs of objects to process, in order of arrival, without duplicates.
    queue: VecDeque<String>,
    queued: HashSet<String>,
}

/// Classified owner references of an object.
#[derive(Debug, Default)]
struct Owners<'a> {
    /// Number of owners that exist and do not wait for the deletion of the object.
    solid: usize,
    /// UIDs of owners that wait for the deletion of the object.
    waiting: Vec<&'a str>,
    /// UIDs of owners that do not exist.
    dangling: Vec<&'a str>,
}

impl GarbageCollector {
    /// Collects garbage until the server has stopped.
    pub(crate) async fn run(mut self, api: Arc<Api>) {
        let mut changes = api.watch(None);
        while let Some(change) = changes.next().await {
            self.handle_change(&api, &change);
            if !self.queue.is_empty() {
                api.sleep(DELAY).await;
                changes.budget().reset();
                changes.drain(|change| self.handle_change(&api, change)).await;
            }
            while let Some(uid) = self.queue.pop_front() {
                changes.budget().spend(1).await;
                self.queued.remove(&uid);
                let Some(object) = api.by_uid(&uid) else { continue };
                if let Err(error) = self.process(&api, &object, changes.budget()).await {
                    // The watch reports the newer state.
                    if error.is_conflict() || error.is_not_found() {
                        debug!(?object, %error, "Object changed while it was processed");
                    } else {
                        warn!(?object, %error, "Failed to collect object");
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

    fn handle_change(&mut self, api: &Api, change: &Change) {
        let object = &change.object;
        // A previous owner may wait for the deletion of this object, or for the reference to stop blocking.
        let before = change.old.as_ref().or(change.deleted.then_some(object));
        for (uid, blocks) in before.into_iter().flat_map(|before| before.owners()) {
            if change.deleted || !object.owners().any(|owner| owner == (uid, blocks)) {
                self.enqueue(uid);
            }
        }
        if change.deleted {
            for dependent in api.dependents(object.uid()) {
                self.enqueue(dependent.uid());
            }
        } else if is_deleting_with(object, FOREGROUND)
            || is_deleting_with(object, ORPHAN)
            || object.owners().next().is_some()
        {
            self.enqueue(object.uid());
        }
    }

    async fn process(
        &mut self,
        api: &Api,
        object: &Object,
        budget: &mut YieldBudget,
    ) -> Result<(), ApiStatus> {
        if is_deleting_with(object, ORPHAN) {
            return Self::orphan_dependents(api, object, budget).await;
        }
        if is_deleting_with(object, FOREGROUND) {
            return self.delete_dependents(api, object);
        }
        if object.is_deleting() || object.owners().next().is_none() {
            return Ok(());
        }
        Self::collect(api, object)
    }

    /// Removes references to absent owners. Deletes the object if no owner is left.
    fn collect(api: &Api, object: &Object) -> Result<(), ApiStatus> {
        let owners = Owners::of(api, object);
        if owners.solid > 0 {
            let removable: Vec<&str> = owners.dangling.iter().chain(&owners.waiting).copied().collect();
            return if removable.is_empty() {
                Ok(())
            } else {
                remove_owner_references(api, object, &removable)
            };
        }
        let dependents = api.dependents(object.uid());
        let propagation = if !owners.waiting.is_empty() && !dependents.is_empty() {
            // If a dependent also waits, it may own its owner: in a cycle, each object would wait for the next.
            if dependents.iter().any(|dependent| is_deleting_with(dependent, FOREGROUND)) {
                unblock_owners(api, object)?;
            }
            DeletionPropagation::Foreground
        } else if object.has_finalizer(ORPHAN) {
            DeletionPropagation::Orphan
        } else if object.has_finalizer(FOREGROUND) {
            DeletionPropagation::Foreground
        } else {
            DeletionPropagation::Background
        };
        debug!(?object, ?propagation, "Deleting object without owners");
        api.delete(object, propagation)
    }

    /// Finishes the foreground deletion of `owner` if no blocking dependent is left.
    fn delete_dependents(&mut self, api: &Api, owner: &Object) -> Result<(), ApiStatus> {
        let dependents = api.dependents(owner.uid());
        let blocks = |dependent: &Arc<Object>| {
            dependent.owner_references().any(|r| r.uid == owner.uid() && r.block_owner_deletion)
        };
        if !dependents.iter().any(blocks) {
            return remove_finalizer(api, owner, FOREGROUND);
        }
        // Dependents in foreground deletion are enqueued again when their own dependents are deleted.
        for dependent in dependents.iter().filter(|dependent| !is_deleting_with(dependent, FOREGROUND)) {
            self.enqueue(dependent.uid());
        }
        Ok(())
    }

    /// Removes the owner from all its dependents, then removes the finalizer.
    async fn orphan_dependents(api: &Api, owner: &Object, budget: &mut YieldBudget) -> Result<(), ApiStatus> {
        for dependent in api.dependents(owner.uid()) {
            budget.spend(1).await;
            remove_owner_references(api, &dependent, &[owner.uid()])?;
        }
        remove_finalizer(api, owner, ORPHAN)
    }
}

impl<'a> Owners<'a> {
    fn of(api: &Api, object: &'a Object) -> Self {
        let mut owners = Self::default();
        for reference in object.owner_references() {
            match find_owner(api, object, &reference) {
                None => owners.dangling.push(reference.uid),
                Some(owner) if is_deleting_with(&owner, FOREGROUND) => owners.waiting.push(reference.uid),
                Some(_) => owners.solid += 1,
            }
        }
        owners
    }
}

/// Returns the owner that `reference` identifies, if it exists. An owner in another namespace counts as absent. So does
/// a namespaced owner of a cluster-scoped object.
fn find_owner(api: &Api, object: &Object, reference: &OwnerReference<'_>) -> Option<Arc<Object>> {
    api.by_uid(reference.uid)
        .filter(|owner| owner.namespace().is_empty() || owner.namespace() == object.namespace())
}

fn is_deleting_with(object: &Object, finalizer: &str) -> bool {
    object.is_deleting() && object.has_finalizer(finalizer)
}

/// Sets `blockOwnerDeletion` to `false` in the owner references of `object`.
///
/// Upstream counterpart: `node.unblockOwnerReferencesPatch`.
fn unblock_owners(api: &Api, object: &Object) -> Result<(), ApiStatus> {
    if object.resource().is_custom() {
        return replace_owner_references(api, object, |_, reference| {
            if reference["blockOwnerDeletion"] == true {
                reference["blockOwnerDeletion"] = json!(false);
            }
            true
        });
    }
    let blocked = object.owner_references().filter(|reference| reference.block_owner_deletion);
    let references: Value = blocked.map(|r| json!({ "uid": r.uid, "blockOwnerDeletion": false })).collect();
    if references == json!([]) {
        return Ok(());
    }
    api.patch(object, &json!({ "metadata": { "uid": object.uid(), "ownerReferences": references } }))
}

fn remove_owner_references(api: &Api, object: &Object, uids: &[&str]) -> Result<(), ApiStatus> {
    if object.resource().is_custom() {
        return replace_owner_references(api, object, |uid, _| !uids.contains(&uid));
    }
    let references: Value = uids.iter().map(|uid| json!({ "$patch": "delete", "uid": uid })).collect();
    api.patch(object, &json!({ "metadata": { "uid": object.uid(), "ownerReferences": references } }))
}

/// Writes the owner references of a custom resource for which `keep` returns `true`. `keep` receives the UID and may
/// change the reference.
///
/// Upstream counterpart: `deleteOwnerRefJSONMergePatch` and `unblockOwnerReferencesJSONMergePatch`.
fn replace_owner_references(
    api: &Api,
    object: &Object,
    keep: impl Fn(&str, &mut Value) -> bool,
) -> Result<(), ApiStatus> {
    let old = object.value()["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let mut new = old.clone();
    new.retain_mut(|reference| {
        let uid = reference["uid"].as_str().unwrap_or_default().to_owned();
        keep(&uid, reference)
    });
    if new == old {
        return Ok(());
    }
    api.merge_metadata(object, json!({ "ownerReferences": new }))
}

fn remove_finalizer(api: &Api, object: &Object, name: &str) -> Result<(), ApiStatus> {
    if object.resource().is_custom() {
        let left: Vec<&str> = object.finalizers().filter(|finalizer| *finalizer != name).collect();
        return api.merge_metadata(object, json!({ "finalizers": left }));
    }
    let patch = json!({ "metadata": { "uid": object.uid(), "$deleteFromPrimitiveList/finalizers": [name] } });
    api.patch(object, &patch)
}
