//! Fields of objects.

use serde_json::Value;

/// Name of an object.
pub(super) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Resource version of an object or list as a number. Clients must treat it as opaque; these checks compare it.
pub(super) fn revision(object: &Value) -> u64 {
    object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Generation of an object.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}
