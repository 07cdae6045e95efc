use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Registry, admission::IMMORTAL_NAMESPACES, has_members, seconds};
use crate::{
    ApiStatus, DeleteOptions, ListOptions, Object, Propagation, Resource,
    json::{at, i64_at, list_at, set},
    store::{self, Commit, Decision, Outcome},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What came of a delete.
#[derive(Debug, Clone)]
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Object>),
    /// It is marked and stays until its finalizers are gone, or its grace period is over.
    Marked(Arc<Object>),
}

impl Deleted {
    pub(crate) fn object(&self) -> &Arc<Object> {
        match self {
            Self::Gone(object) | Self::Marked(object) => object,
        }
    }
}

impl Registry {
    /// Deletes an object, or begins to.
    ///
    /// Upstream counterpart: `registry.Store.Delete` with `rest.BeforeDelete`.
    pub(crate) fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiStatus> {
        check_options(options)?;
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
                Ok(decide(resource, old, options, now))
            },
            |_| Ok(()),
        )?;
        match outcome {
            Outcome::Removed(object) => Ok(Deleted::Gone(object)),
            Outcome::Put(object) if is_due(resource, object.value()) => self.remove_due(object, commit, now),
            Outcome::Put(object) | Outcome::Kept(Some(object)) => Ok(Deleted::Marked(object)),
            Outcome::Kept(None) => Err(ApiStatus::not_found(resource, name)),
        }
    }

    /// Removes what has been marked with no time left.
    ///
    /// Upstream writes the mark and the end of what is deleted gracefully as two, so watches tell of both.
    fn remove_due(
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
            |old| match old.filter(|old| old.uid() == marked.uid() && is_due(resource, old.value())) {
                Some(old) => Ok(Decision::Remove(old.value().clone())),
                // Somebody else was faster.
                None => Ok(Decision::Keep),
            },
            |_| Ok(()),
        )?;
        match outcome {
            Outcome::Removed(object) => Ok(Deleted::Gone(object)),
            Outcome::Put(_) | Outcome::Kept(_) => Ok(Deleted::Gone(marked)),
        }
    }

    /// Deletes what a list selects, one by one; answers what was deleted.
    pub(crate) fn delete_collection(
        &self,
        resource: Resource,
        namespace: &str,
        selected: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Object>>, ApiStatus> {
        let mut deleted = Vec::new();
        for object in self.store.list(resource, namespace, selected)?.items {
            match self.delete(resource, object.namespace(), object.name(), options) {
                Ok(result) => deleted.push(Arc::clone(result.object())),
                // Somebody else was faster.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Removes objects whose kind has a time to live and that nobody wrote for so long. Looks at most once a
    /// minute, when something is created: there is no task that would have to be stopped.
    pub(crate) fn expire(&self) {
        let now = self.clock.now();
        {
            let mut last = self.expiry.lock();
            if now.duration_since(*last) < SignedDuration::from_mins(1) {
                return;
            }
            *last = now;
        }
        for resource in Resource::all() {
            let Some(time_to_live) = resource.strategy().time_to_live() else { continue };
            let expired: Vec<Arc<Object>> = self.store.read(|state| {
                let objects = state.iter(resource, "");
                objects
                    .filter(|object| now.duration_since(object.written()) > time_to_live)
                    .cloned()
                    .collect()
            });
            for object in expired {
                let options = DeleteOptions::with_uid(object.uid());
                // A failure means that it was written or deleted meanwhile.
                let _ = self.delete(resource, object.namespace(), object.name(), &options);
            }
        }
    }
}

fn check_options(options: &DeleteOptions) -> Result<(), ApiStatus> {
    if options.orphan_dependents.is_some() && options.propagation.is_some() {
        return Err(ApiStatus::invalid_field(
            "DeleteOptions",
            "meta.k8s.io",
            "",
            "propagationPolicy",
            "FieldValueInvalid",
            "Invalid value: \"\": orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    Ok(())
}

fn check_preconditions(resource: Resource, old: &Object, options: &DeleteOptions) -> Result<(), ApiStatus> {
    let conflict = |why: String| {
        let mut error = ApiStatus::conflict_on(resource.kind(), resource, old.name(), why);
        // Here upstream reports the kind.
        if let Some(details) = &mut error.details {
            resource.kind().clone_into(&mut details.kind);
        }
        error
    };
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

fn decide(resource: Resource, old: &Arc<Object>, options: &DeleteOptions, now: jiff::Timestamp) -> Decision {
    let strategy = resource.strategy();
    let mut new = old.value().clone();
    let grace = strategy.grace_period(&new, options.grace_period_seconds);
    let pending = i64_at(&new, &["metadata", "deletionGracePeriodSeconds"]);
    if let (Some(_), true, Some(pending)) = (grace, old.is_deleting(), pending) {
        // A deletion under way can only be hastened, and gains no finalizers.
        let asked = options.grace_period_seconds.map(|asked| if asked < 0 { 1 } else { asked });
        match asked.filter(|asked| *asked < pending) {
            Some(shorter) => mark(&mut new, shorter, now, Some(shorter - pending)),
            // Marked with no time left, and not removed: the server was stopped in between.
            None if asked == Some(0) && is_due(resource, &new) => return Decision::Remove(new),
            None => return Decision::Keep,
        }
    } else {
        set_finalizers(&mut new, options, strategy.orphans_by_default());
        if grace.is_none() && !is_held(resource, &new) {
            // It goes as it was: there is nothing to be marked for.
            return Decision::Remove(new);
        }
        if !old.is_deleting() {
            mark(&mut new, grace.unwrap_or_default(), now, None);
            strategy.prepare_deletion(&mut new);
        }
    }
    if new == *old.value() { Decision::Keep } else { Decision::Put(new) }
}

/// Whether something keeps it from being removed.
fn is_held(resource: Resource, object: &Value) -> bool {
    has_members(object, &["metadata", "finalizers"]) || resource.strategy().is_held(object)
}

/// Whether it is marked, with no time left and nothing to wait for.
fn is_due(resource: Resource, object: &Value) -> bool {
    i64_at(object, &["metadata", "deletionGracePeriodSeconds"]) == Some(0) && !is_held(resource, object)
}

/// Sets the time by which the object is to be gone. `hastened` moves a time that is already set.
fn mark(object: &mut Value, grace: i64, now: jiff::Timestamp, hastened: Option<i64>) {
    let set_before = at(object, &["metadata", "deletionTimestamp"]).and_then(Value::as_str);
    let set_before = set_before.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let due = match (set_before, hastened) {
        (Some(due), Some(by)) => due.saturating_add(SignedDuration::from_secs(by)),
        _ => now.saturating_add(SignedDuration::from_secs(grace)),
    };
    set(object, &["metadata", "deletionTimestamp"], seconds(due.unwrap_or(now)));
    set(object, &["metadata", "deletionGracePeriodSeconds"], grace);
    if set_before.is_none()
        && let Some(generation) =
            i64_at(object, &["metadata", "generation"]).filter(|generation| *generation > 0)
    {
        set(object, &["metadata", "generation"], generation + 1);
    }
}

/// Adds and removes the finalizers by which the garbage collector is told what to do.
///
/// Upstream counterpart: `deletionFinalizersForGarbageCollection`.
fn set_finalizers(object: &mut Value, options: &DeleteOptions, orphans_by_default: bool) {
    let present = list_at(object, &["metadata", "finalizers"]);
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.propagation, options.orphan_dependents) {
        (Some(policy), _) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
        (None, Some(orphan)) => (orphan, false),
        // No word on it: what is there stays, and orphaning comes before waiting.
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
