//! Access to members of untyped objects by path, without JSON pointers' escaping and allocation.

use std::io;

use serde_json::{Map, Value};

/// Value at `path`, if every parent is an object with the next key.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(*key))
}

/// String at `path`, or `""` if absent, as Go's zero value.
pub fn str_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Integer at `path`.
pub fn i64_at(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Boolean at `path`, or `false` if absent, as Go's zero value.
pub fn bool_at(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// List at `path`, or an empty list.
pub fn list_at<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `value` as a map. Any other value is replaced by an empty map.
pub fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Map at `path`. Missing maps are created.
pub fn map_at_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut map = map_mut(value);
    for key in path {
        map = map_mut(map.entry(*key).or_insert(Value::Null));
    }
    map
}

/// Sets the value at `path`. Missing maps are created.
pub fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if let Some((last, parents)) = path.split_last() {
        map_at_mut(value, parents).insert((*last).to_owned(), new.into());
    }
}

/// Removes and returns the value at `path`.
pub fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |value, key| value.get_mut(*key))?;
    parent.as_object_mut()?.remove(*last)
}

/// Copies the value at `path` from `from` to `value`. If `from` has none, it is removed from `value`.
pub fn copy(value: &mut Value, from: &Value, path: &[&str]) {
    match at(from, path) {
        Some(old) => set(value, path, old.clone()),
        None => drop(remove(value, path)),
    }
}

/// Compact JSON as Go writes it: `<`, `>`, `&`, U+2028 and U+2029 are escaped.
struct GoFormatter;

impl serde_json::ser::Formatter for GoFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let mut written = 0;
        for (at, byte) in text.bytes().enumerate() {
            let (escaped, length) = match byte {
                b'<' => ("\\u003c", 1),
                b'>' => ("\\u003e", 1),
                b'&' => ("\\u0026", 1),
                // First byte of both characters, among others.
                0xe2 if text[at..].starts_with('\u{2028}') => ("\\u2028", 3),
                0xe2 if text[at..].starts_with('\u{2029}') => ("\\u2029", 3),
                _ => continue,
            };
            writer.write_all(&text.as_bytes()[written..at])?;
            writer.write_all(escaped.as_bytes())?;
            written = at + length;
        }
        writer.write_all(&text.as_bytes()[written..])
    }
}

/// Appends `value` as JSON text.
pub fn write_json<T: serde::Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *text, GoFormatter);
    // Writing strings and values with string keys to memory does not fail.
    if let Err(error) = value.serialize(&mut serializer) {
        tracing::error!(%error, "Failed to serialize JSON value");
    }
}

/// Returns the condition of type `ty`.
pub fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    list_at(object, &["status", "conditions"]).iter().find(|condition| str_at(condition, &["type"]) == ty)
}

/// Sets a condition in the status. The transition time changes with the status of the condition.
pub fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    let ty = str_at(&condition, &["type"]).to_owned();
    let mut conditions = list_at(object, &["status", "conditions"]).to_vec();
    let position = conditions.iter().position(|old| str_at(old, &["type"]) == ty);
    let old = position.and_then(|position| conditions.get(position));
    let since = old.filter(|old| old.get("status") == condition.get("status"));
    let since =
        since.and_then(|old| old.get("lastTransitionTime")).cloned().unwrap_or_else(|| Value::from(now));
    set(&mut condition, &["lastTransitionTime"], since);
    match position.and_then(|position| conditions.get_mut(position)) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
    set(object, &["status", "conditions"], conditions);
}

/// Equality as `equality.Semantic.DeepEqual`: an absent member, `null`, `[]` and `{}` are equal.
pub fn semantically_equal(left: Option<&Value>, right: Option<&Value>) -> bool {
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

/// Name of the value's type in Go's error messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Approximate size of the JSON text in bytes. The actual size is at most twice as large.
pub fn estimated_len(value: &Value) -> usize {
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
    fn text_is_escaped_as_by_go() {
        let mut text = Vec::new();
        let value = json!({"<a>": "b && \u{2028}\u{2029}\u{2030} \"\n\u{1}"});
        write_json(&mut text, &value);
        let escaped = r#"{"\u003ca\u003e":"b \u0026\u0026 \u2028\u2029‰ \"\n\u0001"}"#;
        assert_eq!(std::str::from_utf8(&text).unwrap(), escaped);
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn set_creates_missing_maps() {
        let mut value = json!({"a": 1});
        set(&mut value, &["b", "c"], 2);
        set(&mut value, &["a", "d"], "x");
        assert_eq!(value, json!({"a": {"d": "x"}, "b": {"c": 2}}));
    }

    #[test]
    fn copy_removes_absent_members() {
        let mut value = json!({"status": {"phase": "Running"}, "spec": {}});
        copy(&mut value, &json!({"spec": {"x": 1}}), &["status"]);
        copy(&mut value, &json!({"spec": {"x": 1}}), &["spec", "x"]);
        assert_eq!(value, json!({"spec": {"x": 1}}));
    }

    #[test]
    fn semantic_equality_equates_empty_and_absent() {
        let equal = |a: Value, b: Value| semantically_equal(Some(&a), Some(&b));
        assert!(equal(json!({"a": [], "b": {}}), json!({"c": null})));
        assert!(equal(json!([{"a": {}}]), json!([{}])));
        assert!(!equal(json!({"a": 0}), json!({})));
        assert!(!equal(json!([1]), json!([1, 2])));
        assert!(semantically_equal(None, Some(&json!({}))));
        assert!(!semantically_equal(None, Some(&json!(""))));
    }
}
