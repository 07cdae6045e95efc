//! Paths into untyped objects, without the escaping and allocating of JSON pointers.

use serde_json::{Map, Value};

/// What stands at `path`, if every step of it is an object that has the next key.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(*key))
}

/// The string at `path`, or the empty string, as Go reads an absent string.
pub(crate) fn str_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at `path`.
pub(crate) fn i64_at(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// The truth value at `path`, or `false`, as Go reads an absent one.
pub(crate) fn bool_at(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The list at `path`, or an empty one.
pub(crate) fn list_at<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `value` as a map, which it is made into if it is something else.
pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The map at `path`, created with every map on the way to it.
pub(crate) fn map_at_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut map = map_mut(value);
    for key in path {
        map = map_mut(map.entry(*key).or_insert(Value::Null));
    }
    map
}

/// Puts `new` at `path`, creating the maps on the way.
pub(crate) fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if let Some((last, parents)) = path.split_last() {
        map_at_mut(value, parents).insert((*last).to_owned(), new.into());
    }
}

/// Takes away what is at `path`.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |value, key| value.get_mut(*key))?;
    parent.as_object_mut()?.remove(*last)
}

/// Makes what is at `path` in `value` the same as in `from`: copied if it is there, absent if it is not.
pub(crate) fn copy(value: &mut Value, from: &Value, path: &[&str]) {
    match at(from, path) {
        Some(old) => set(value, path, old.clone()),
        None => drop(remove(value, path)),
    }
}

/// Equality as `equality.Semantic.DeepEqual` has it: an absent member, `null`, `[]` and `{}` are the same.
pub(crate) fn semantically_equal(left: Option<&Value>, right: Option<&Value>) -> bool {
    fn empty(value: Option<&Value>) -> bool {
        match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.values().all(|value| empty(Some(value))),
            Some(_) => false,
        }
    }
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            left.iter().all(|(key, value)| semantically_equal(Some(value), right.get(key)))
                && right.iter().all(|(key, value)| left.contains_key(key) || empty(Some(value)))
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| semantically_equal(Some(left), Some(right)))
        }
        (left, right) => left == right || (empty(left) && empty(right)),
    }
}

/// About how many bytes `value` takes when serialised; cheap, and never less than half the truth.
pub(crate) fn estimated_len(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|value| estimated_len(value) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter().map(|(key, value)| key.len() + 4 + estimated_len(value)).sum::<usize>() + 2
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_creates_the_maps_on_the_way() {
        let mut value = json!({"a": 1});
        set(&mut value, &["b", "c"], 2);
        set(&mut value, &["a", "d"], "x");
        assert_eq!(value, json!({"a": {"d": "x"}, "b": {"c": 2}}));
    }

    #[test]
    fn copy_of_an_absent_member_removes_it() {
        let mut value = json!({"status": {"phase": "Running"}, "spec": {}});
        copy(&mut value, &json!({"spec": {"x": 1}}), &["status"]);
        copy(&mut value, &json!({"spec": {"x": 1}}), &["spec", "x"]);
        assert_eq!(value, json!({"spec": {"x": 1}}));
    }

    #[test]
    fn semantic_equality_takes_empty_for_absent_and_nothing_else() {
        let equal = |a: Value, b: Value| semantically_equal(Some(&a), Some(&b));
        assert!(equal(json!({"a": [], "b": {}}), json!({"c": null})));
        assert!(equal(json!([{"a": {}}]), json!([{}])));
        assert!(!equal(json!({"a": 0}), json!({})));
        assert!(!equal(json!([1]), json!([1, 2])));
        assert!(semantically_equal(None, Some(&json!({}))));
        assert!(!semantically_equal(None, Some(&json!(""))));
    }
}
