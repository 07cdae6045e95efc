//! Duplicate items of sets and keyed lists.
//!
//! Upstream counterpart: the package `listtype` of `apiextensions-apiserver/pkg/apiserver/schema`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{child, error};
use crate::{
    field_error::{ErrorType, FieldError},
    structural_schema::{Additional, ListType, Schema},
};

/// As [`list_types`], if there were no such items before.
pub(in crate::custom) fn new_duplicates(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
) -> Vec<FieldError> {
    let errors = list_types(value, schema, path);
    let existed = old.is_some_and(|old| !errors.is_empty() && !list_types(old, schema, path).is_empty());
    if existed { Vec::new() } else { errors }
}

/// Returns the duplicate items of sets and keyed lists.
fn list_types(value: &Value, schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_list_types(value, schema, path, &mut errors);
    errors
}

fn check_list_types(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(schema), _) => check_list_types(member, schema, &child(path, name), errors),
                    (None, Additional::Schema(schema)) => {
                        check_list_types(member, schema, &format!("{path}[{name}]"), errors);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            let at = |index: usize| format!("{path}[{index}]");
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in duplicates(items) {
                        errors.push(error(
                            ErrorType::Duplicate,
                            &at(index),
                            items[index].clone(),
                            String::new(),
                        ));
                    }
                }
                ListType::Map(keys) => {
                    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
                        let detail = "must be an object for an array of list-type map".to_owned();
                        errors.push(error(ErrorType::Invalid, &at(index), items[index].clone(), detail));
                    } else {
                        let keys: Vec<Value> = items.iter().map(|item| key_of(item, keys)).collect();
                        for index in duplicates(&keys) {
                            errors.push(error(
                                ErrorType::Duplicate,
                                &at(index),
                                keys[index].clone(),
                                String::new(),
                            ));
                        }
                    }
                }
            }
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    check_list_types(item, schema, &at(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Keys of an item of a keyed list.
pub(super) fn key_of(item: &Value, keys: &[String]) -> Value {
    let members = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(members.collect())
}

/// Returns the index of the second occurrence of each repeated value.
fn duplicates(values: &[Value]) -> Vec<usize> {
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    let mut indexes = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let text = value.to_string();
        if !seen.insert(text.clone()) && repeated.insert(text) {
            indexes.push(index);
        }
    }
    indexes
}
