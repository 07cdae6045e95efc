//! Strategies: rules of single kinds for create, update and delete.
//!
//! Upstream counterpart: the `strategy.go` files of `k8s.io/kubernetes/pkg/registry`.

pub(crate) mod apps;
pub(crate) mod core;
pub(crate) mod definition;
pub(crate) mod pod;
pub(crate) mod stored_only;

use serde_json::Value;

use crate::{
    User,
    json::{self, at, i64_at, semantically_equal, set},
    label_selector::LabelSelector,
    selectable_field::SelectableField,
};

/// Rules of a kind. The defaults describe a kind without status, generation and graceful deletion.
pub(crate) trait Strategy: Sync {
    /// `true` for custom resources. Without the status subresource, their status is written as any other field.
    fn is_custom(&self) -> bool {
        false
    }

    /// Initial status, which replaces the client's. `None` for kinds without status.
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// `true` if the status is written through the status subresource only.
    fn has_status(&self) -> bool {
        self.initial_status(&Value::Null).is_some()
    }

    /// Fields whose changes increment the generation. Empty for kinds without generation.
    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// `true` if objects have a generation.
    fn has_generation(&self) -> bool {
        !self.generation_fields().is_empty()
    }

    /// `true` if an update increments the generation.
    fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        let changed = |path: &&[&str]| !semantically_equal(at(new, path), at(old, path));
        self.generation_fields().iter().any(changed)
    }

    /// Sets further fields of a new object. Called after defaulting, before validation.
    fn prepare_create(&self, _object: &mut Value, _user: Option<&User>) {}

    /// Restores further fields that an update of the main resource must not change.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Restores further fields that an update of the status must not change.
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// `true` if an update without resource version overwrites the latest version.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// `true` if an update of an object that does not exist creates it.
    fn allows_create_on_update(&self) -> bool {
        false
    }

    /// Supported field selectors other than name and namespace.
    fn selectable_fields(&self) -> &[SelectableField] {
        &[]
    }

    /// `true` if a removal returns the object instead of a Status.
    fn deletion_returns_object(&self) -> bool {
        false
    }

    /// Seconds between deletion and removal. `requested` is the requested grace period. `None` for kinds without graceful
    /// deletion.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// `true` if the object must stay although its `metadata.finalizers` are empty.
    fn has_own_finalizers(&self, _object: &Value) -> bool {
        false
    }

    /// `true` if dependents are orphaned unless the delete specifies a propagation policy.
    ///
    /// Upstream counterpart: `DefaultGarbageCollectionPolicy`.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Finalizer that is added when the object is marked for deletion.
    fn deletion_finalizer(&self) -> Option<&'static str> {
        None
    }

    /// Changes the object when it is marked for deletion.
    fn prepare_deletion(&self, _object: &mut Value) {}

    /// Selector in the Scale of the object.
    fn scale_selector(&self, object: &Value) -> LabelSelector {
        at(object, &["spec", "selector"]).map(LabelSelector::from_object).unwrap_or_default()
    }

    /// Warnings returned to the creator.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warnings returned to the writer of an update.
    fn update_warnings(&self, _new: &Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Time after its last write at which an object expires.
    fn time_to_live(&self) -> Option<jiff::SignedDuration> {
        None
    }
}

/// Sets the server-controlled fields of a new object.
pub(crate) fn prepare_create(strategy: &dyn Strategy, object: &mut Value, user: Option<&User>) {
    match strategy.initial_status(object) {
        Some(status) => set(object, &["status"], status),
        None if strategy.has_status() => drop(json::remove(object, &["status"])),
        None => {}
    }
    if strategy.has_generation() {
        set(object, &["metadata", "generation"], 1);
    }
    strategy.prepare_create(object, user);
}

/// Restores fields that an update of the main resource must not change, and increments the generation.
pub(crate) fn prepare_update(strategy: &dyn Strategy, new: &mut Value, old: &Value) {
    if strategy.has_status() || !strategy.is_custom() {
        json::copy(new, old, &["status"]);
    }
    strategy.prepare_update(new, old);
    update_generation(strategy, new, old);
}

/// Increments the generation if the update changes the fields that it counts.
fn update_generation(strategy: &dyn Strategy, new: &mut Value, old: &Value) {
    if strategy.increments_generation(new, old) {
        let generation = i64_at(old, &["metadata", "generation"]).unwrap_or_default();
        set(new, &["metadata", "generation"], generation + 1);
    }
}

/// Restores fields that an update of the status must not change.
pub(crate) fn prepare_status_update(strategy: &dyn Strategy, new: &mut Value, old: &Value) {
    json::copy(new, old, &["spec"]);
    strategy.prepare_status_update(new, old);
}
