//! Resources embedded in custom resources.
//!
//! Upstream counterpart: the package `objectmeta` of `apiextensions-apiserver/pkg/apiserver/schema`.

use serde_json::Value;

use super::{child, error};
use crate::{
    field_error::{ErrorType, FieldError},
    structural_schema::{Additional, Schema},
    validate,
};

/// Returns the errors of the resources embedded below `value`.
pub(in crate::custom) fn embedded_resources(value: &Value, schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_embedded(value, schema, path, &mut errors);
    errors
}

fn check_embedded(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(members) => {
            if schema.is_embedded_resource && !path.is_empty() {
                for name in ["apiVersion", "kind"] {
                    match members.get(name) {
                        None => {
                            errors.push(error(ErrorType::Required, &child(path, name), "", String::new()));
                        }
                        Some(Value::String(text)) if !text.is_empty() => {}
                        Some(value) => {
                            let detail = "must not be empty".to_owned();
                            errors.push(error(ErrorType::Invalid, &child(path, name), value.clone(), detail));
                        }
                    }
                }
                for mut found in validate::embedded_metadata(value) {
                    found.field = child(path, &found.field);
                    errors.push(found);
                }
            }
            for (name, member) in members {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(schema), _) => check_embedded(member, schema, &child(path, name), errors),
                    (None, Additional::Schema(schema)) => {
                        check_embedded(member, schema, &format!("{path}[{name}]"), errors);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    check_embedded(item, schema, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}
