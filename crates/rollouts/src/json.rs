//! Access to members of JSON objects.

use std::str::FromStr;

use kcm_api::Time;
use kcm_clock::Timestamp;
use serde_json::Value;

/// Text at `pointer`, or `""`.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Number at `pointer`.
pub fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// List at `pointer`, or an empty one.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Members of the object at `pointer`.
pub fn members<'a>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// Time at `pointer`.
pub fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    Time::from_str(text(value, pointer)).ok().map(Time::timestamp)
}

/// Condition of this type in `status.conditions`.
pub fn condition<'a>(value: &'a Value, type_: &str) -> Option<&'a Value> {
    list(value, "/status/conditions").iter().find(|condition| condition["type"] == type_)
}
