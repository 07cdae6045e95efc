//! Strategies of Namespaces, Nodes, Events, Leases and other small kinds.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::Strategy;
use crate::{
    User,
    json::{at, copy, list_at, set},
    label_selector::LabelSelector,
    selectable_field::SelectableField,
};

/// Kinds without special rules.
pub(crate) struct Plain;

impl Strategy for Plain {}

/// Namespaces.
pub(crate) struct Namespace;

impl Strategy for Namespace {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"phase": "Active"}))
    }

    fn prepare_create(&self, object: &mut Value, _user: Option<&User>) {
        // The namespace controller removes the finalizer once the namespace is empty.
        let mut finalizers = list_at(object, &["spec", "finalizers"]).to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
            finalizers.push(json!("kubernetes"));
        }
        set(object, &["spec", "finalizers"], finalizers);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        copy(new, old, &["spec", "finalizers"]);
    }

    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 2] = [
            SelectableField { name: "status.phase", paths: &[&["status", "phase"]], absent: "" },
            // Legacy name, kept by upstream.
            SelectableField { name: "name", paths: &[&["metadata", "name"]], absent: "" },
        ];
        &FIELDS
    }

    fn deletion_returns_object(&self) -> bool {
        true
    }

    fn has_own_finalizers(&self, object: &Value) -> bool {
        !list_at(object, &["spec", "finalizers"]).is_empty()
    }

    fn prepare_deletion(&self, object: &mut Value) {
        set(object, &["status", "phase"], "Terminating");
    }
}

/// ReplicationControllers.
pub(crate) struct ReplicationController;

impl Strategy for ReplicationController {
    fn initial_status(&self, _object: &Value) -> Option<Value> {
        Some(json!({"replicas": 0}))
    }

    fn generation_fields(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }

    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 1] =
            [SelectableField { name: "status.replicas", paths: &[&["status", "replicas"]], absent: "0" }];
        &FIELDS
    }

    fn scale_selector(&self, object: &Value) -> LabelSelector {
        at(object, &["spec", "selector"]).map(LabelSelector::from_labels).unwrap_or_default()
    }

    fn orphans_by_default(&self) -> bool {
        true
    }
}

/// Nodes.
pub(crate) struct Node;

impl Strategy for Node {
    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 1] = [SelectableField {
            name: "spec.unschedulable",
            paths: &[&["spec", "unschedulable"]],
            absent: "false",
        }];
        &FIELDS
    }
}

/// Events in core/v1.
pub(crate) struct Event;

impl Strategy for Event {
    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn selectable_fields(&self) -> &'static [SelectableField] {
        const fn field(name: &'static str, paths: &'static [&'static [&'static str]]) -> SelectableField {
            SelectableField { name, paths, absent: "" }
        }
        static FIELDS: [SelectableField; 11] = [
            field("involvedObject.kind", &[&["involvedObject", "kind"]]),
            field("involvedObject.namespace", &[&["involvedObject", "namespace"]]),
            field("involvedObject.name", &[&["involvedObject", "name"]]),
            field("involvedObject.uid", &[&["involvedObject", "uid"]]),
            field("involvedObject.apiVersion", &[&["involvedObject", "apiVersion"]]),
            field("involvedObject.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
            field("involvedObject.fieldPath", &[&["involvedObject", "fieldPath"]]),
            field("reason", &[&["reason"]]),
            field("reportingComponent", &[&["reportingComponent"]]),
            field("source", &[&["source", "component"], &["reportingComponent"]]),
            field("type", &[&["type"]]),
        ];
        &FIELDS
    }

    fn time_to_live(&self) -> Option<SignedDuration> {
        Some(SignedDuration::from_hours(1))
    }
}

/// Leases.
pub(crate) struct Lease;

impl Strategy for Lease {
    fn allows_create_on_update(&self) -> bool {
        true
    }

    // Leader election must not overwrite a concurrent update.
    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// ServiceAccounts.
pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn deletion_returns_object(&self) -> bool {
        true
    }
}

/// Secrets.
pub(crate) struct Secret;

impl Strategy for Secret {
    fn selectable_fields(&self) -> &'static [SelectableField] {
        static FIELDS: [SelectableField; 1] =
            [SelectableField { name: "type", paths: &[&["type"]], absent: "" }];
        &FIELDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_starts_active_with_finalizer() {
        let mut namespace = json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        super::super::prepare_create(&Namespace, &mut namespace, None);
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert!(Namespace.has_own_finalizers(&namespace));
    }
}
