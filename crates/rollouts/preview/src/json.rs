//! Access to and changes of members of JSON objects.

use serde_json::{Map, Value};

pub(crate) use kcm_rollouts::json::{
    condition, controller, is_terminating, list, members, number, text, time,
};

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
