//! Conversion of JSON values to values of expressions.
//!
//! Upstream counterpart: `apiserver/pkg/cel/common/valuesunstructured.go` and `cel/escaping.go`.

use std::{collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value,
    objects::{Key, KeyRef, Map, Opaque},
};
use serde_json::Value as Json;

use super::{
    eval::as_optional,
    functions::{parse_duration, parse_timestamp},
};
use crate::structural_schema::{Additional, ListType, Schema, SchemaType};

/// A list whose items have an identity: `x-kubernetes-list-type` `set` or `map`. Their order does not matter for equality.
#[derive(Debug, PartialEq)]
pub(super) struct KeyedList {
    items: Arc<Vec<Value>>,
    /// Escaped keys of a list of type `map`.
    keys: Option<Arc<[String]>>,
}

impl Eq for KeyedList {}

impl Opaque for KeyedList {
    fn runtime_type_name(&self) -> &str {
        "list"
    }
}

impl KeyedList {
    pub(super) fn of(value: &Value) -> Option<&Self> {
        let Value::Opaque(opaque) = value else { return None };
        opaque.downcast_ref()
    }

    fn is_same(&self, left: &Value, right: &Value) -> bool {
        let Some(keys) = &self.keys else { return left == right };
        let member = |value: &Value, key: &str| match value {
            Value::Map(map) => map.get(&KeyRef::String(key)).cloned(),
            _ => None,
        };
        keys.iter().all(|key| member(left, key) == member(right, key))
    }

    pub(super) fn equals(&self, others: &[Value]) -> bool {
        // In the same order, the usual case is linear.
        self.items.as_slice() == others
            || self.items.len() == others.len()
                && others.iter().all(|other| {
                    self.items.iter().find(|item| self.is_same(item, other)).is_some_and(|item| item == other)
                })
    }

    /// The list with `others`, of which those with the same keys replace items.
    pub(super) fn merged(&self, others: &[Value]) -> Value {
        let mut items = Vec::clone(&self.items);
        for other in others {
            match items.iter_mut().find(|item| self.is_same(item, other)) {
                Some(item) => *item = other.clone(),
                None => items.push(other.clone()),
            }
        }
        Value::Opaque(Arc::new(Self { items: Arc::new(items), keys: self.keys.clone() }))
    }
}

/// Items of a list.
pub(super) fn items(value: &Value) -> Option<&Arc<Vec<Value>>> {
    match value {
        Value::List(items) => Some(items),
        _ => KeyedList::of(value).map(|list| &list.items),
    }
}

/// Maximum nesting of a value that functions and comparisons read, which limits their stack.
const MAX_NESTING: usize = 200;

/// Number of elements, or of bytes of a text, without those of elements.
pub(super) fn length(value: &Value) -> usize {
    match value {
        Value::Map(map) => map.map.len(),
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        list => items(list).map_or(0, |items| items.len()),
    }
}

/// Number of elements and of bytes of texts in a value, at most `limit`. It is `limit` if the value is nested too deeply.
///
/// A value may contain another one many times, so it may be much larger than the memory that it takes.
pub(super) fn weight(value: &Value, limit: usize) -> usize {
    let (mut found, mut rest) = (1_usize, vec![(value, 0)]);
    while let Some((value, nesting)) = rest.pop() {
        found = found.saturating_add(length(value).max(1));
        if found >= limit || nesting > MAX_NESTING {
            return limit;
        }
        match value {
            Value::Map(map) => rest.extend(map.map.values().map(|value| (value, nesting + 1))),
            value => {
                let listed = items(value).into_iter().flat_map(|items| items.iter());
                let content = as_optional(value).flatten();
                rest.extend(listed.chain(content).map(|value| (value, nesting + 1)));
            }
        }
    }
    found
}

/// The value without the identity of items, as libraries expect it.
pub(super) fn plain(value: Value) -> Value {
    match KeyedList::of(&value) {
        Some(list) => Value::List(Arc::clone(&list.items)),
        None => value,
    }
}

/// The value without the identity of items in all lists.
pub(super) fn without_identity(value: &Value) -> Value {
    match value {
        Value::Map(members) => Value::Map(Map {
            map: Arc::new(
                members.map.iter().map(|(key, value)| (key.clone(), without_identity(value))).collect(),
            ),
        }),
        other => match items(other) {
            Some(items) => Value::List(Arc::new(items.iter().map(without_identity).collect())),
            None => other.clone(),
        },
    }
}

fn number(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => Value::Int(number),
        (None, Some(number)) => Value::UInt(number),
        (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
    }
}

fn map(members: impl Iterator<Item = (String, Value)>) -> Value {
    let map: HashMap<Key, Value> = members.map(|(name, value)| (Key::from(name), value)).collect();
    Value::Map(Map { map: Arc::new(map) })
}

/// Converts a value without schema.
pub(crate) fn untyped(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(value) => number(value),
        Json::String(value) => Value::from(value.as_str()),
        Json::Array(values) => Value::List(Arc::new(values.iter().map(untyped).collect())),
        Json::Object(members) => map(members.iter().map(|(name, value)| (name.clone(), untyped(value)))),
    }
}

/// Prefix of names that no expression can select, because they are unknown or cannot be escaped. They are compared.
const HIDDEN: char = '\0';

/// Converts a value of a custom resource.
pub(super) fn typed(json: &Json, schema: &Schema, is_root: bool) -> Value {
    match json {
        Json::Object(members) if !schema.is_int_or_string => {
            let is_resource = is_root || schema.is_embedded_resource;
            if !is_resource && schema.properties.is_empty() {
                let member = |value: &Json| match &schema.additional {
                    Additional::Schema(schema) => typed(value, schema, false),
                    Additional::None | Additional::Any => untyped(value),
                };
                let hidden = !matches!(schema.additional, Additional::Schema(_));
                return map(members.iter().map(|(name, value)| {
                    let name = if hidden { format!("{HIDDEN}{name}") } else { name.clone() };
                    (name, member(value))
                }));
            }
            // A null of an object's field is as an absent one.
            let present = members.iter().filter(|(_, value)| !value.is_null());
            map(present.map(|(name, value)| {
                let hidden = || (format!("{HIDDEN}{name}"), untyped(value));
                let Some(escaped) = escape(name) else { return hidden() };
                match (schema.properties.get(name), name.as_str()) {
                    (_, "metadata") if is_resource => (escaped, metadata(value)),
                    (_, "apiVersion" | "kind") if is_resource => (escaped, untyped(value)),
                    (Some(schema), _) => (escaped, typed(value, schema, false)),
                    (None, _) => hidden(),
                }
            }))
        }
        Json::Array(values) => {
            let item = |value: &Json| match &schema.items {
                Some(schema) => typed(value, schema, false),
                None => untyped(value),
            };
            let items = Arc::new(values.iter().map(item).collect());
            let keys = match &schema.list_type {
                ListType::Atomic => return Value::List(items),
                ListType::Set => None,
                ListType::Map(keys) => {
                    Some(keys.iter().map(|key| escape(key).unwrap_or_else(|| key.clone())).collect())
                }
            };
            Value::Opaque(Arc::new(KeyedList { items, keys }))
        }
        Json::String(text) if schema.ty == Some(SchemaType::String) => formatted(text, schema),
        Json::Number(value) if schema.ty == Some(SchemaType::Number) => {
            Value::Float(value.as_f64().unwrap_or_default())
        }
        #[expect(clippy::cast_possible_truncation, reason = "validated as an integer")]
        Json::Number(value) if schema.ty == Some(SchemaType::Integer) => {
            Value::Int(value.as_i64().unwrap_or_else(|| value.as_f64().unwrap_or_default() as i64))
        }
        other => untyped(other),
    }
}

/// Metadata of a resource, of which only the name and its prefix can be selected.
fn metadata(json: &Json) -> Value {
    let members = json.as_object().into_iter().flatten();
    map(members.map(|(name, value)| {
        let hidden = !matches!(name.as_str(), "name" | "generateName");
        (if hidden { format!("{HIDDEN}{name}") } else { name.clone() }, untyped(value))
    }))
}

fn formatted(text: &str, schema: &Schema) -> Value {
    use base64::Engine;
    let parsed = match schema.constraints.format.as_str() {
        "date-time" => parse_timestamp(text).map(Value::Timestamp),
        "date" => parse_timestamp(&format!("{text}T00:00:00Z")).map(Value::Timestamp),
        "duration" => parse_duration(text).ok().map(Value::Duration),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).ok().map(Value::from),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the identifier of a property in expressions, if it has one.
pub(super) fn escape(name: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(valid) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("my_field", Some("my_field")),
            ("__a", Some("__underscores__a")),
            ("a.b/c-d", Some("a__dot__b__slash__c__dash__d")),
            ("namespace", Some("__namespace__")),
            ("namespaces", Some("namespaces")),
            ("1a", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }
}
