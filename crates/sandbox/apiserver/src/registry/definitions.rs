//! Effects of CustomResourceDefinitions: accepted names, served resources, removal of the objects.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/controller` (`status`, `establish`, `finalizer`) and
//! `customresource_handler.go`. The work is done by the request that changes a definition, so that a created kind is
//! served when the definition's creation is answered.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Registry, has_members};
use crate::{
    ApiStatus, DeleteOptions, Object, Resource, StatusReason,
    custom::{self, CustomResources},
    json::{list_at, set, set_condition},
    kind::Kind,
    store::{self, Commit, Decision, State},
    strategy::definition::CLEANUP,
};

const DEFINITIONS: Resource = Resource::CUSTOM_RESOURCE_DEFINITIONS;

/// Number of objects that are deleted before the next ones are read.
const BATCH: usize = 64;

impl Registry {
    /// Returns the custom resources that are served now.
    pub(crate) fn custom(&self) -> Arc<CustomResources> {
        Arc::clone(&self.custom.read())
    }

    /// Returns the kind of a resource. A custom resource is in the version `api_version` if it is served, or else in the
    /// storage version.
    ///
    /// # Errors
    ///
    /// 404 if the definition of the custom resource was deleted.
    pub(crate) fn kind(&self, resource: Resource, api_version: &str) -> Result<Kind, ApiStatus> {
        if !resource.is_custom() {
            return Ok(resource.into());
        }
        let custom = self.custom();
        let custom = custom.get(resource).ok_or_else(ApiStatus::unknown_path)?;
        Ok(custom.version_or_storage(api_version).into())
    }

    /// Returns the served resource with this kind.
    #[cfg(feature = "cel")]
    pub(crate) fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let is_served = |resource: &Resource| {
            let custom = self.custom();
            let custom = custom.get(*resource);
            custom.is_some_and(|custom| {
                custom.versions.iter().any(|version| version.api_version == api_version)
            })
        };
        let custom = self.custom();
        let mut custom = custom.iter().map(|custom| custom.resource);
        let custom = custom.find(|resource| resource.kind() == kind && is_served(resource));
        Resource::of_kind(api_version, kind).or(custom)
    }

    /// Adapts the server to changed definitions. Does nothing if `resource` is another one.
    pub(super) fn definitions_changed(&self, resource: Resource) {
        if resource == DEFINITIONS {
            self.load_definitions();
        }
    }

    /// Accepts names of definitions and serves established ones.
    pub(crate) fn load_definitions(&self) {
        let _one_at_a_time = self.definitions.lock();
        let now = self.now();
        // Each write accepts or frees names, which other definitions in the group may wait for.
        loop {
            let definitions = self.all_definitions();
            let Some((definition, new)) = custom::renamed(&definitions, &now) else {
                let new = Arc::new(CustomResources::new(&definitions, &self.custom()));
                let old = std::mem::replace(&mut *self.custom.write(), Arc::clone(&new));
                old.retire(&new);
                return;
            };
            if let Err(error) = self.replace_definition(&definition, |_| Some(new.clone())) {
                tracing::error!(%error, definition = definition.name(), "Failed to update status of definition");
                return;
            }
        }
    }

    fn all_definitions(&self) -> Vec<Arc<Object>> {
        self.store.read(|state| state.iter(DEFINITIONS, "").collect())
    }

    /// Writes the new state of a definition, unless it was changed concurrently. `change` returns `None` to remove it.
    fn replace_definition(
        &self,
        definition: &Object,
        change: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), ApiStatus> {
        let key = store::key("", definition.name());
        let decide = |old: Option<&Arc<Object>>| {
            let Some(old) = old.filter(|old| old.revision() == definition.revision()) else {
                return Ok(Decision::Keep);
            };
            let Some(new) = change(old.value()) else { return Ok(Decision::Remove(old.value().clone())) };
            let is_released = old.is_deleting() && !has_members(&new, &["metadata", "finalizers"]);
            Ok(if is_released { Decision::Remove(new) } else { Decision::Put(new) })
        };
        self.store.update(DEFINITIONS, &key, Commit::Real, self.clock.now(), decide, |_| Ok(())).map(drop)
    }

    /// Deletes the objects of a definition that is being deleted, and the definition after the last object.
    pub(super) fn remove_instances(&self, definition: &Object) {
        let Some(resource) = custom::resource_of(definition) else { return };
        let mut after = None;
        loop {
            let batch = self.store.scan(resource, "", after.as_ref(), BATCH);
            for object in batch.iter().filter(|object| !object.is_deleting()) {
                let options = DeleteOptions::with_uid(object.uid());
                if let Err(error) = self.delete(resource, object.namespace(), object.name(), &options, None)
                    && !error.is_not_found()
                {
                    tracing::warn!(%error, ?object, "Failed to delete object of a terminating definition");
                }
            }
            match batch.last() {
                Some(last) if batch.len() == BATCH => after = Some(store::key_of(last)),
                _ => break,
            }
        }
        self.instance_removed(resource);
    }

    /// Removes a terminating definition if no object of `resource` is left.
    pub(super) fn instance_removed(&self, resource: Resource) {
        if !resource.is_custom() || !self.store.scan(resource, "", None, 1).is_empty() {
            return;
        }
        let Some(definition) = self.store.get(DEFINITIONS, &resource.qualified()) else { return };
        if !definition.is_deleting() || !definition.has_finalizer(CLEANUP) {
            return;
        }
        let now = self.now();
        let finished = self.replace_definition(&definition, |old| {
            let mut new = old.clone();
            let finalizers = list_at(old, &["metadata", "finalizers"]).iter();
            let others: Vec<Value> = finalizers.filter(|finalizer| *finalizer != CLEANUP).cloned().collect();
            set(&mut new, &["metadata", "finalizers"], others);
            let condition = json!({"type": "Terminating", "status": "False",
                "reason": "InstanceDeletionCompleted", "message": "removed all instances"});
            set_condition(&mut new, condition, &now);
            Some(new)
        });
        if let Err(error) = finished {
            tracing::error!(%error, definition = definition.name(), "Failed to finalize definition");
        }
        self.load_definitions();
    }
}

/// Rejects the creation of a custom resource whose definition is being deleted or no longer exists.
pub(super) fn check_definition(state: &State, resource: Resource) -> Result<(), ApiStatus> {
    if !resource.is_custom() {
        return Ok(());
    }
    match state.get(DEFINITIONS, &resource.qualified()) {
        None => Err(ApiStatus::unknown_path()),
        Some(definition) if definition.is_deleting() => Err(ApiStatus::new(
            StatusReason::MethodNotAllowed,
            "create not allowed while custom resource definition is terminating",
        )),
        Some(_) => Ok(()),
    }
}
