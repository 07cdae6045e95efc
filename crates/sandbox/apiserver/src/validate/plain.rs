//! Namespaces, ConfigMaps, Secrets, PriorityClasses, Leases and Events.

use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    read::{entries, flag, get, given, integer, map, text},
};

/// Maximum size of the data of a ConfigMap or Secret in bytes.
const MAX_DATA: usize = 1024 * 1024;

/// Validates the phase of a namespace after a write of its status.
pub(super) fn namespace_phase(object: &Value, errors: &mut Errors) {
    let (phase, detail) = match given(get(object, "metadata"), "deletionTimestamp") {
        None => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        Some(_) => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    let found = text(get(object, "status"), "phase");
    if found != phase {
        errors.invalid(&Path::new("status").child("Phase"), found, detail);
    }
}

/// Validates a ConfigMap.
pub(super) fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    let texts = map(object, "data");
    for (field, is_base64) in [("data", false), ("binaryData", true)] {
        let path = Path::new(field);
        for (key, value) in entries(object, field) {
            let path = path.key(key);
            errors.rule(&path, key, names::config_key);
            if is_base64 && texts.is_some_and(|texts| texts.contains_key(key)) {
                errors.invalid(&path, key.as_str(), "duplicate of key present in data");
            }
            size += size_of(value, is_base64);
        }
    }
    if size > MAX_DATA {
        errors.too_long(&Path::new(""), MAX_DATA);
    }
}

/// Validates a Secret.
pub(super) fn secret(object: &Value, errors: &mut Errors) {
    let data = Path::new("data");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        errors.rule(&data.key(key), key, names::config_key);
        size += size_of(value, true);
    }
    if size > MAX_DATA {
        errors.too_long(&data, MAX_DATA);
    }
    let required: &[&str] = match text(object, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required {
        if map(object, "data").is_none_or(|data| !data.contains_key(*key)) {
            errors.required(&data.key(key), "");
        }
    }
}

/// Rejects a change of a Secret's type.
pub(super) fn secret_type(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(&Path::new("type"), get(new, "type"), get(old, "type"));
}

fn size_of(value: &Value, is_base64: bool) -> usize {
    let text = value.as_str().unwrap_or_default();
    if is_base64 { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() }
}

/// Rejects changes of an immutable ConfigMap or Secret.
pub(super) fn immutable_data(new: &Value, old: &Value, errors: &mut Errors) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), DETAIL);
    }
    for field in ["data", "binaryData"] {
        if get(new, field) != get(old, field) {
            errors.forbidden(&Path::new(field), DETAIL);
        }
    }
}

/// Rejects changes of a PriorityClass's value and preemption policy.
pub(super) fn priority_class_immutable(new: &Value, old: &Value, errors: &mut Errors) {
    if integer(new, "value") != integer(old, "value") {
        errors.forbidden(&Path::new("value"), "may not be changed in an update.");
    }
    let policy = "preemptionPolicy";
    errors.immutable(&Path::new(policy), get(new, policy), get(old, policy));
}

/// Validates the spec of a Lease. An empty holder means that the lease was released.
pub(super) fn lease(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::new("spec"));
    if let Some(seconds) = integer(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.not_negative(&path.child("leaseTransitions"), integer(spec, "leaseTransitions"));
}

/// Requires a resource version for the update of a Lease.
pub(super) fn lease_version(object: &Value, errors: &mut Errors) {
    let metadata = Path::new("metadata");
    if text(get(object, "metadata"), "resourceVersion").is_empty() {
        errors.invalid(&metadata.child("resourceVersion"), 0, "must be specified for an update");
    }
}

/// Validates an Event of either API group.
pub(super) fn event(object: &Value, errors: &mut Errors) {
    // Field names in core/v1 and events.k8s.io/v1.
    let is_core = text(object, "apiVersion") == "v1";
    let about = if is_core { "involvedObject" } else { "regarding" };
    let (reporter, message) =
        if is_core { ("reportingComponent", "message") } else { ("reportingController", "note") };
    let namespace = text(get(object, "metadata"), "namespace");
    let about_namespace = text(get(object, about), "namespace");
    let is_new_style = given(object, "eventTime").is_some();
    let agrees = match (about_namespace, is_new_style) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (about, false) => about == namespace,
        (_, true) => true,
    };
    if !agrees {
        let involved = Path::new("involvedObject");
        errors.invalid(&involved.child("namespace"), about_namespace, "does not match event.namespace");
    }
    if !is_new_style {
        if !is_core {
            errors.required(&Path::new("eventTime"), "");
        }
        return;
    }
    let name = text(object, reporter);
    if name.is_empty() {
        errors.required(&Path::new(reporter), "");
    }
    errors.rule(&Path::new(reporter), name, names::qualified_name);
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let (path, text) = (Path::new(field), text(object, field));
        errors.present(&path, text);
        if text.len() > limit {
            errors.invalid(&path, "", format!("can have at most {limit} characters"));
        }
    }
    if text(object, message).len() > 1024 {
        errors.invalid(&Path::new("message"), "", "can have at most 1024 characters");
    }
}
