use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Registry, admission::IMMORTAL_NAMESPACES, has_members, seconds};
use crate::{
    ApiStatus, DeleteOptions, DeletionPropagation, Object, Resource,
    admission::Admission,
    json::{at, i64_at, list_at, remove, set},
    store::{self, Commit, Decision, UpdateResult},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

const GRACE: &[&str] = &["metadata", "deletionGracePeriodSeconds"];

/// Result of a delete.
#[derive(Debug, Clone)]
pub(crate) enum Deleted {
    /// The object was removed. Contains its last state.
    Removed(Arc<Object>),
    /// The object has a deletion timestamp and stays until its finalizers are removed and its grace period ends.
    Marked(Arc<Object>),
}

impl Deleted {
    pub(crate) fn object(&self) -> &Arc<Object> {
        match self {
            Self::Removed(object) | Self::Marked(object) => object,
        }
    }
}

impl Registry {
    /// Deletes an object or marks it for deletion.
    ///
    /// Upstream counterpart: `registry.Store.Delete` with `rest.BeforeDelete`.
    pub(crate) fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        admission: Option<&Admission<'_>>,
    ) -> Result<Deleted, ApiStatus> {
        if resource == Resource::NAMESPACES && IMMORTAL_NAMESPACES.contains(&name) {
            return Err(ApiStatus::forbidden(resource, name, "this namespace may not be deleted"));
        }
        let commit = if options.dry_run { Commit::Dry } else { Commit::Real };
        let now = self.clock.now();
        let outcome = self.store.update(
            resource,
            &store::key(namespace, name),
            commit,
            now,
            |old| {
                let old = old.ok_or_else(|| ApiStatus::not_found(resource, name))?;
                check_preconditions(resource, old, options)?;
                admission.map_or(Ok(()), |admission| admission.admit_deletion(old))?;
                Ok(before_delete(resource, old, options, now))
            },
            |_| Ok(()),
        )?;
        let deleted = match outcome {
            UpdateResult::Removed(object) => Deleted::Removed(object),
            UpdateResult::Put(object) if is_removable(resource, object.value()) => {
                self.remove_marked(object, commit, now)?
            }
            UpdateResult::Put(object) | UpdateResult::Unchanged(Some(object)) => Deleted::Marked(object),
            UpdateResult::Unchanged(None) => return Err(ApiStatus::not_found(resource, name)),
        };
        if commit == Commit::Real {
            self.definitions_changed(resource);
            match &deleted {
                Deleted::Marked(definition) if resource == Resource::CUSTOM_RESOURCE_DEFINITIONS => {
                    self.remove_instances(definition);
                }
                Deleted::Removed(_) => self.instance_removed(resource),
                Deleted::Marked(_) => {}
            }
        }
        Ok(deleted)
    }

    /// Removes a marked object whose grace period is 0.
    ///
    /// Upstream performs graceful deletion in two writes, so watches report both.
    fn remove_marked(
        &self,
        marked: Arc<Object>,
        commit: Commit,
        now: jiff::Timestamp,
    ) -> Result<Deleted, ApiStatus> {
        let resource = marked.resource();
        let outcome = self.store.update(
            resource,
            &store::key(marked.namespace(), marked.name()),
            commit,
            now,
            |old| match old.filter(|old| old.uid() == marked.uid() && is_removable(resource, old.value())) {
                Some(old) => Ok(Decision::Remove(old.value().clone())),
                // The object was removed or replaced concurrently.
                None => Ok(Decision::Keep),
            },
            |_| Ok(()),
        )?;
        match outcome {
            UpdateResult::Removed(object) => Ok(Deleted::Removed(object)),
            UpdateResult::Put(_) | UpdateResult::Unchanged(_) => Ok(Deleted::Removed(marked)),
        }
    }
}

fn check_preconditions(resource: Resource, old: &Object, options: &DeleteOptions) -> Result<(), ApiStatus> {
    let conflict =
        |why: String| ApiStatus::conflict_of_kind(resource.group(), resource.kind(), old.name(), &why);
    let given = &options.preconditions;
    if let Some(uid) = given.uid.as_deref().filter(|uid| *uid != old.uid()) {
        return Err(conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            old.uid()
        )));
    }
    let current = old.revision().to_string();
    if let Some(version) = given.resource_version.as_deref().filter(|version| *version != current) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({current}). The object might have been modified"
        )));
    }
    Ok(())
}

fn before_delete(
    resource: Resource,
    old: &Arc<Object>,
    options: &DeleteOptions,
    now: jiff::Timestamp,
) -> Decision {
    let strategy = resource.strategy();
    let mut new = old.value().clone();
    let grace = strategy.grace_period(&new, options.grace_period_seconds);
    let pending = i64_at(&new, GRACE);
    if let (Some(_), true, Some(pending)) = (grace, old.is_deleting(), pending) {
        // The grace period of a terminating object can only be shortened. No finalizers are added.
        let requested =
            options.grace_period_seconds.map(|requested| if requested < 0 { 1 } else { requested });
        match requested.filter(|requested| *requested < pending) {
            Some(shorter) => set_deletion_timestamp(&mut new, shorter, now, Some(shorter - pending)),
            // The server stopped between marking and removal.
            None if requested == Some(0) && is_removable(resource, &new) => return Decision::Remove(new),
            None => return Decision::Keep,
        }
    } else {
        set_finalizers(&mut new, options, strategy.orphans_by_default());
        if let Some(finalizer) = strategy.deletion_finalizer().filter(|_| !old.is_deleting()) {
            let mut finalizers = list_at(&new, &["metadata", "finalizers"]).to_vec();
            if !finalizers.iter().any(|known| known == finalizer) {
                finalizers.push(json!(finalizer));
                set(&mut new, &["metadata", "finalizers"], finalizers);
            }
        }
        if grace.is_none() && !is_removal_blocked(resource, &new) {
            // Without a grace period and finalizers the object is removed unmarked.
            return Decision::Remove(new);
        }
        if !old.is_deleting() {
            set_deletion_timestamp(&mut new, grace.unwrap_or_default(), now, None);
            if resource == Resource::NAMESPACES {
                remove(&mut new, GRACE);
            }
            strategy.prepare_deletion(&mut new);
        }
    }
    if new == *old.value() { Decision::Keep } else { Decision::Put(new) }
}

/// `true` if finalizers prevent the removal.
fn is_removal_blocked(resource: Resource, object: &Value) -> bool {
    has_members(object, &["metadata", "finalizers"]) || resource.strategy().has_own_finalizers(object)
}

/// `true` if the object is marked, its grace period is 0 and no finalizer prevents the removal.
fn is_removable(resource: Resource, object: &Value) -> bool {
    let is_over = match i64_at(object, GRACE) {
        Some(seconds) => seconds == 0,
        // A namespace has none.
        None => resource == Resource::NAMESPACES && at(object, &["metadata", "deletionTimestamp"]).is_some(),
    };
    is_over && !is_removal_blocked(resource, object)
}

/// Sets the deletion timestamp and grace period. `adjustment` is added to an existing deletion timestamp (seconds).
fn set_deletion_timestamp(object: &mut Value, grace: i64, now: jiff::Timestamp, adjustment: Option<i64>) {
    let set_before = at(object, &["metadata", "deletionTimestamp"]).and_then(Value::as_str);
    let set_before = set_before.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let due = match (set_before, adjustment) {
        (Some(due), Some(by)) => due.saturating_add(SignedDuration::from_secs(by)),
        _ => now.saturating_add(SignedDuration::from_secs(grace)),
    };
    set(object, &["metadata", "deletionTimestamp"], seconds(due.unwrap_or(now)));
    set(object, GRACE, grace);
    if set_before.is_none()
        && let Some(generation) =
            i64_at(object, &["metadata", "generation"]).filter(|generation| *generation > 0)
    {
        set(object, &["metadata", "generation"], generation + 1);
    }
}

/// Sets the finalizers that the garbage collector processes.
///
/// Upstream counterpart: `deletionFinalizersForGarbageCollection`.
fn set_finalizers(object: &mut Value, options: &DeleteOptions, orphans_by_default: bool) {
    let present = list_at(object, &["metadata", "finalizers"]);
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.propagation, options.orphan_dependents) {
        (Some(policy), _) => {
            (policy == DeletionPropagation::Orphan, policy == DeletionPropagation::Foreground)
        }
        (None, Some(orphan)) => (orphan, false),
        // Unspecified: existing finalizers are kept, orphaning takes precedence over foreground deletion.
        (None, None) => (has(ORPHAN) || (orphans_by_default && !has(FOREGROUND)), has(FOREGROUND)),
    };
    if (orphan, foreground) == (has(ORPHAN), has(FOREGROUND)) {
        return;
    }
    let others = present.iter().filter(|finalizer| *finalizer != ORPHAN && *finalizer != FOREGROUND).cloned();
    let mut finalizers: Vec<Value> = others.collect();
    finalizers.extend(orphan.then(|| json!(ORPHAN)));
    finalizers.extend(foreground.then(|| json!(FOREGROUND)));
    set(object, &["metadata", "finalizers"], finalizers);
}
