//! Access to members of JSON objects.

use std::str::FromStr;

use kcm_api::Time;
use kcm_clock::Timestamp;
use serde_json::{Map, Value};

/// Text at `pointer`, or `""`.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Number at `pointer`.
pub(crate) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// List at `pointer`, or an empty one.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Members of the object at `pointer`.
pub(crate) fn members<'a>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// Time at `pointer`.
pub(crate) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    Time::from_str(text(value, pointer)).ok().map(Time::timestamp)
}

/// Condition of this type in `status.conditions`.
pub(crate) fn condition<'a>(value: &'a Value, type_: &str) -> Option<&'a Value> {
    list(value, "/status/conditions").iter().find(|condition| condition["type"] == type_)
}

/// Sets the member at the path `keys`. Objects on the way are created.
pub(crate) fn set(value: &mut Value, keys: &[&str], new: Value) {
    let Some((key, rest)) = keys.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Value::Object(members) = value {
        set(members.entry(*key).or_insert(Value::Null), rest, new);
    }
}

/// Removes the member `key` of the object at `pointer`.
pub(crate) fn remove(value: &mut Value, pointer: &str, key: &str) -> Option<Value> {
    value.pointer_mut(pointer).and_then(Value::as_object_mut).and_then(|members| members.remove(key))
}
