//! What is special about each kind.
//!
//! Upstream counterpart: the `strategy.go` files of `k8s.io/kubernetes/pkg/registry`.

pub(crate) mod apps;
pub(crate) mod core;
pub(crate) mod inert;
pub(crate) mod pod;

use serde_json::Value;

use crate::{
    json::{self, at, i64_at, semantically_equal, set},
    selector::{LabelSelector, SelectableField},
};

/// How a kind differs from the plainest one, which has no status, no generation and is deleted at once.
pub(crate) trait Strategy: Sync {
    /// The status of a new object, whatever the client sent; `None` for kinds that have no status.
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// The members whose changes the generation counts; none for kinds that have no generation.
    fn counted_members(&self) -> &'static [&'static [&'static str]] {
        &[]
    }

    /// Sets what else a new object has whatever the client sent. Runs after defaults, before validation.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Keeps what else a write to the main resource cannot change.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Keeps what else a write to the status cannot change.
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Whether a PUT without a resource version overwrites the newest state.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Fields that it can be selected by, besides name and namespace.
    fn selectable_fields(&self) -> &'static [SelectableField] {
        &[]
    }

    /// Whether a removal answers with the object rather than with a Status.
    fn deletion_returns_object(&self) -> bool {
        false
    }

    /// Seconds between the request to delete and the removal; `asked` is what the request says. `None` for
    /// kinds that know no such thing.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether it must stay after its finalizers are gone.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Whether its dependents stay when a request to delete it does not say what is to become of them. So it was
    /// before there was a garbage collector.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Marks more than the metadata when deletion begins.
    fn prepare_deletion(&self, _object: &mut Value) {}

    /// The selector that `/scale` reports.
    fn scale_selector(&self, object: &Value) -> LabelSelector {
        at(object, &["spec", "selector"]).map(LabelSelector::from_object).unwrap_or_default()
    }

    /// What to tell the user who creates one.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// How long an object that nobody writes is kept.
    fn time_to_live(&self) -> Option<jiff::SignedDuration> {
        None
    }
}

/// Sets what a new object has whatever the client sent.
pub(crate) fn prepare_create(strategy: &dyn Strategy, object: &mut Value) {
    if let Some(status) = strategy.initial_status(object) {
        set(object, &["status"], status);
    }
    if !strategy.counted_members().is_empty() {
        set(object, &["metadata", "generation"], 1);
    }
    strategy.prepare_create(object);
}

/// Keeps what a write to the main resource cannot change, and counts the generation.
pub(crate) fn prepare_update(strategy: &dyn Strategy, new: &mut Value, old: &Value) {
    json::copy(new, old, &["status"]);
    strategy.prepare_update(new, old);
    let changed = |path: &&[&str]| !semantically_equal(at(new, path), at(old, path));
    if strategy.counted_members().iter().any(changed) {
        let generation = i64_at(old, &["metadata", "generation"]).unwrap_or_default();
        set(new, &["metadata", "generation"], generation + 1);
    }
}

/// Keeps what a write to the status cannot change.
pub(crate) fn prepare_status_update(strategy: &dyn Strategy, new: &mut Value, old: &Value) {
    json::copy(new, old, &["spec"]);
    strategy.prepare_status_update(new, old);
}
