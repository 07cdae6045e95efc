//! Strategy of CustomResourceDefinitions.

use serde_json::{Value, json};

use super::Strategy;
use crate::json::{bool_at, list_at, set, set_condition, str_at};

/// Finalizer of a definition whose objects are being removed.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// CustomResourceDefinitions.
pub(crate) struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn initial_status(&self, definition: &Value) -> Option<Value> {
        Some(json!({
            "acceptedNames": {"kind": "", "plural": ""},
            "conditions": null,
            "storedVersions": storage_version(definition).into_iter().collect::<Vec<_>>(),
        }))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        let Some(storage) = storage_version(new).map(str::to_owned) else { return };
        let mut stored = list_at(new, &["status", "storedVersions"]).to_vec();
        if !stored.iter().any(|version| *version == storage) {
            stored.push(json!(storage));
            set(new, &["status", "storedVersions"], stored);
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn deletion_finalizer(&self) -> Option<&'static str> {
        Some(CLEANUP)
    }

    fn prepare_deletion(&self, definition: &mut Value) {
        let since = str_at(definition, &["metadata", "deletionTimestamp"]).to_owned();
        let condition = json!({"type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"});
        set_condition(definition, condition, &since);
    }
}

fn storage_version(definition: &Value) -> Option<&str> {
    let versions = list_at(definition, &["spec", "versions"]);
    versions.iter().find(|version| bool_at(version, &["storage"])).map(|version| str_at(version, &["name"]))
}
