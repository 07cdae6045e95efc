//! Access to optional fields. Absent fields have zero values, as in Go.

use serde_json::{Map, Value};

/// Returns the field, or null.
pub(super) fn get<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Returns the field if it is present and not null.
pub(super) fn given<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !value.is_null())
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    get(value, name).as_str().unwrap_or_default()
}

pub(super) fn integer(value: &Value, name: &str) -> Option<i64> {
    get(value, name).as_i64()
}

pub(super) fn flag(value: &Value, name: &str) -> bool {
    get(value, name).as_bool().unwrap_or_default()
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    get(value, name).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the strings of a list.
pub(super) fn texts<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    list(value, name).iter().filter_map(Value::as_str)
}

pub(super) fn map<'a>(value: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    get(value, name).as_object()
}

/// Returns the entries of a map.
pub(super) fn entries<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map(value, name).into_iter().flatten()
}
