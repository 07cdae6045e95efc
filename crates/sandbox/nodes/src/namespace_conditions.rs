//! Conditions of a terminating namespace.
//!
//! Upstream counterpart: `pkg/controller/namespace/deletion/status_condition_utils.go`.

use std::collections::BTreeMap;

use kcm_api::Time;
use kcm_apiserver::Object;
use serde_json::{Value, json};

use crate::api::condition;

/// Conditions that the simulated namespace controller never sets to `True`: type, reason, message.
const NO_FAILURES: [(&str, &str, &str); 3] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
];

/// Returns a patch of the status that reports the remaining objects. `None` if the status is up to date.
pub(crate) fn patch<'a>(
    namespace: &Value,
    remaining: impl Iterator<Item = &'a Object>,
    now: Time,
) -> Option<Value> {
    let mut by_resource = BTreeMap::new();
    let mut by_finalizer = BTreeMap::new();
    for object in remaining {
        let (resource, group) = (object.resource().plural(), object.resource().group());
        *by_resource.entry(format!("{resource}.{group} has")).or_insert(0_usize) += 1;
        let finalizers = object.value().pointer("/metadata/finalizers").and_then(Value::as_array);
        for finalizer in finalizers.into_iter().flatten().filter_map(Value::as_str) {
            *by_finalizer.entry(format!("{finalizer} in")).or_insert(0_usize) += 1;
        }
    }
    let counts = |counts: &BTreeMap<String, usize>| {
        let counts: Vec<String> =
            counts.iter().map(|(of, count)| format!("{of} {count} resource instances")).collect();
        counts.join(", ")
    };
    let content = match by_resource.is_empty() {
        true => ("False", "ContentRemoved", "All content successfully removed".to_owned()),
        false => {
            ("True", "SomeResourcesRemain", format!("Some resources are remaining: {}", counts(&by_resource)))
        }
    };
    let finalizers = match by_finalizer.is_empty() {
        true => ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        false => (
            "True",
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {}", counts(&by_finalizer)),
        ),
    };
    let failures = NO_FAILURES.map(|(type_, reason, message)| (type_, ("False", reason, message.to_owned())));
    let totals = [("NamespaceContentRemaining", content), ("NamespaceFinalizersRemaining", finalizers)];
    let mut conditions = Vec::new();
    for (type_, (status, reason, message)) in failures.into_iter().chain(totals) {
        let old = condition(namespace, type_);
        let same = |field: &str, value: &str| old.is_some_and(|old| old[field] == value);
        if !(same("status", status) && same("reason", reason) && same("message", &message)) {
            let since = old.filter(|_| same("status", status)).map(|old| old["lastTransitionTime"].clone());
            conditions.push(json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
            }));
        }
    }
    (!conditions.is_empty()).then(|| json!({ "status": { "conditions": conditions } }))
}
