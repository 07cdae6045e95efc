//! Fields of the scale subresource.

use serde_json::{Value, json};

use super::error;
use crate::{
    custom::ScalePaths,
    field_error::{ErrorType, FieldError},
};

/// Returns the errors of the fields that the scale subresource reads. `spec` includes the requested replicas.
pub(in crate::custom) fn scale(object: &Value, paths: &ScalePaths, spec: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec {
        replicas(object, &paths.spec_replicas, &mut errors);
    }
    replicas(object, &paths.status_replicas, &mut errors);
    if let Some(path) = &paths.label_selector {
        match nested(object, path) {
            Ok(None | Some(Value::String(_))) => {}
            Ok(Some(value)) => errors.push(accessor_error(path, json!(""), value, "string")),
            Err(value) => errors.push(accessor_error(path, json!(""), value, "map[string]interface{}")),
        }
    }
    errors
}

fn replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let value = match nested(object, path) {
        Ok(None) => return,
        Ok(Some(value)) => value,
        Err(value) => return errors.push(accessor_error(path, json!(0), value, "map[string]interface{}")),
    };
    let integral = value.as_f64().filter(|number| number.fract() == 0.0);
    let invalid = |detail: String| error(ErrorType::Invalid, path, value.clone(), detail);
    match value.as_i64().or(integral.map(|number| number as i64)) {
        None => errors.push(accessor_error(path, json!(0), value, "int64")),
        Some(number) if number < 0 => errors.push(invalid("should be a non-negative integer".to_owned())),
        Some(number) if number > i64::from(i32::MAX) => {
            errors.push(invalid(format!("should be less than or equal to {}", i32::MAX)));
        }
        Some(_) => {}
    }
}

/// Returns the value at a path such as `.spec.replicas`.
///
/// # Errors
///
/// A parent is not an object. Contains the parent.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, &'a Value> {
    let mut value = object;
    for name in path.trim_start_matches('.').split('.') {
        let Value::Object(members) = value else { return Err(value) };
        match members.get(name) {
            None => return Ok(None),
            Some(member) => value = member,
        }
    }
    Ok(Some(value))
}

fn accessor_error(path: &str, zero: Value, found: &Value, expected: &str) -> FieldError {
    let go_type = match found {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
    let detail = format!("{path} accessor error: {text} is of the type {go_type}, expected {expected}");
    error(ErrorType::Invalid, path, zero, detail)
}
