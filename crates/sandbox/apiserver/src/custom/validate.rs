//! Validation of custom resources against their schemas.
//!
//! The messages are those of upstream, including its `<nil>` for errors without a field.
//!
//! Upstream counterpart: `kube-openapi/pkg/validation/validate` and `registry/customresource/validator.go`.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::{
    field_error::{ErrorType, FieldError},
    json::at,
    structural_schema::{Additional, Constraints, ListType, Schema, SchemaType},
};

mod embedded;
mod format;
mod list_types;
mod scale;

pub(super) use embedded::embedded_resources;
use format::{has_format, is_known_format};
use list_types::key_of;
pub(super) use list_types::new_duplicates;
pub(super) use scale::scale;

/// Field of an error that belongs to no field.
const NO_FIELD: &str = "<nil>";

/// Returns the errors of `value` at `path` (empty for the whole object) against its schema. What is equal in `old` is
/// valid, so that objects can be updated after a schema has become stricter.
///
/// Upstream counterpart: `RatchetingSchemaValidator`.
pub(super) fn against_schema(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(value, old, schema, path, &mut errors);
    errors
}

fn error(error_type: ErrorType, field: &str, value: impl Into<Value>, detail: String) -> FieldError {
    let field = if field.is_empty() { NO_FIELD } else { field };
    FieldError { field: field.to_owned(), error_type, value: Some(value.into()), detail }
}

fn without_field(detail: String) -> FieldError {
    error(ErrorType::Invalid, "", "", detail)
}

/// Error without field and value.
#[cfg(feature = "cel")]
pub(super) fn without_value(detail: &str) -> FieldError {
    error(ErrorType::Invalid, "", Value::Null, detail.to_owned())
}

/// `true` for errors after which rules are not evaluated.
///
/// Upstream counterpart: `hasBlockingErr`.
#[cfg(feature = "cel")]
pub(super) fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.error_type,
        ErrorType::NotSupported
            | ErrorType::Required
            | ErrorType::TooLong
            | ErrorType::TooMany
            | ErrorType::TypeInvalid
    )
}

/// Appends `.name` to a path.
fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Type of a value, in upstream's terms. A number with a fraction is a `number`.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    check_type(value, schema, path, errors);
    if value.is_null() {
        check_enum(value, &schema.constraints, path, errors);
        return;
    }
    check_junctors(value, &schema.constraints, path, errors);
    match value {
        Value::String(text) => check_string(text, schema, path, errors),
        Value::Number(number) => check_number(number, schema, path, errors),
        Value::Array(items) => check_items(items, old, schema, path, errors),
        _ => {}
    }
    check_enum(value, &schema.constraints, path, errors);
    if let Value::Object(members) = value {
        check_members(members, old, schema, path, errors);
    }
}

fn check_type(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let expected: &[SchemaType] = match (schema.is_int_or_string, &schema.ty) {
        (true, _) => &[SchemaType::Integer, SchemaType::String],
        (false, Some(ty)) => std::slice::from_ref(ty),
        (false, None) => return,
    };
    let found = type_of(value);
    let format = schema.constraints.format.as_str();
    if value.is_null() {
        if !schema.nullable {
            let names = names(expected);
            errors.push(wrong_type(path, &names, found));
        }
        return;
    }
    let is_integral = |number: &Number| number.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = expected.iter().any(|ty| match (ty, value) {
        (SchemaType::Integer, Value::Number(number)) => !number.is_f64() || is_integral(number),
        (SchemaType::Number, Value::Number(_)) => true,
        (ty, _) => ty.name() == found,
    });
    if fits {
        return;
    }
    let is_numeric = expected.iter().any(|ty| matches!(ty, SchemaType::Integer | SchemaType::Number));
    match value {
        // Upstream leaves strings and lists with a format to the format's check.
        Value::String(_) | Value::Array(_)
            if !format.is_empty() && !is_numeric && is_known_format(format) => {}
        Value::Number(number) if number.is_f64() && !format.is_empty() => {
            errors.push(wrong_type(path, format, "float64"));
        }
        _ => errors.push(wrong_type(path, &names(expected), found)),
    }
}

fn names(types: &[SchemaType]) -> String {
    types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(",")
}

fn wrong_type(path: &str, expected: &str, found: &str) -> FieldError {
    let detail = if path.is_empty() {
        format!(" in body must be of type {expected}: {found:?}")
    } else {
        format!("{path} in body must be of type {expected}: {found:?}")
    };
    error(ErrorType::TypeInvalid, path, found, detail)
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`.
fn check_junctors(value: &Value, constraints: &Constraints, path: &str, errors: &mut Vec<FieldError>) {
    let against = |schema: &Schema| against_schema(value, None, schema, path);
    if !constraints.any_of.is_empty() {
        let results: Vec<_> = constraints.any_of.iter().map(against).collect();
        if results.iter().all(|errors| !errors.is_empty()) {
            errors.push(without_field(format!("\"{path}\" must validate at least one schema (anyOf)")));
            errors.extend(results.into_iter().next().unwrap_or_default());
        }
    }
    if !constraints.one_of.is_empty() {
        let results: Vec<_> = constraints.one_of.iter().map(against).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            errors.push(without_field(format!(
                "\"{path}\" must validate one and only one schema (oneOf). {found}"
            )));
            if valid == 0 {
                errors.extend(results.into_iter().next().unwrap_or_default());
            }
        }
    }
    if !constraints.all_of.is_empty() {
        let results: Vec<_> = constraints.all_of.iter().map(against).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid != results.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.extend(results.into_iter().flatten());
            errors.push(without_field(format!("\"{path}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &constraints.not
        && against(not).is_empty()
    {
        errors.push(without_field(format!("\"{path}\" must not validate the schema (not)")));
    }
}

fn check_string(text: &str, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let constraints = &schema.constraints;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let invalid = |detail: String| error(ErrorType::Invalid, path, text, format!("{path} in body {detail}"));
    // The first error only, as upstream.
    if let Some(max) = constraints.max_length.filter(|max| length > *max) {
        errors.push(error(ErrorType::TooLong, path, "", format!("may not be more than {max} bytes")));
    } else if let Some(min) = constraints.min_length.filter(|min| length < *min) {
        errors.push(invalid(format!("should be at least {min} chars long")));
    } else if let Some(pattern) = constraints.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text))
    {
        errors.push(invalid(format!("should match '{}'", pattern.text)));
    }
    let format = constraints.format.as_str();
    if is_known_format(format) && !has_format(text, format) {
        errors.push(invalid(format!("must be of type {format}: {text:?}")));
    }
}

fn check_number(number: &Number, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let constraints = &schema.constraints;
    let Some(value) = number.as_f64() else { return };
    let integer = schema.ty == Some(SchemaType::Integer);
    let in_range = match constraints.format.as_str() {
        "int32" if integer => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "int64" if integer => number.is_i64() || value.fract() == 0.0,
        _ => true,
    };
    // An integral number with a fraction part, such as 2.0, is an integer.
    let in_range = in_range
        || constraints.format == "int32"
            && value.fract() == 0.0
            && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value);
    if !in_range {
        errors.push(without_field(format!(
            "Checked value must be of type integer with format {} in {path}",
            constraints.format
        )));
    }
    let mut invalid = |detail: String| {
        errors.push(error(ErrorType::Invalid, path, number.clone(), format!("{path} in body {detail}")));
    };
    if let Some(factor) = constraints.multiple_of
        && factor > 0.0
    {
        let quotient = value / factor;
        if (quotient - quotient.round()).abs() > 1e-9 {
            invalid(format!("should be a multiple of {factor}"));
        }
    }
    let beyond = |limit: f64, exclusive: bool, order: Ordering| {
        value.partial_cmp(&limit) == Some(order) || (exclusive && value.total_cmp(&limit) == Ordering::Equal)
    };
    if let Some(max) =
        constraints.maximum.filter(|max| beyond(*max, constraints.exclusive_maximum, Ordering::Greater))
    {
        let or_equal = if constraints.exclusive_maximum { "" } else { " or equal to" };
        invalid(format!("should be less than{or_equal} {max}"));
    }
    if let Some(min) =
        constraints.minimum.filter(|min| beyond(*min, constraints.exclusive_minimum, Ordering::Less))
    {
        let or_equal = if constraints.exclusive_minimum { "" } else { " or equal to" };
        invalid(format!("should be greater than{or_equal} {min}"));
    }
}

fn check_items(
    items: &[Value],
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let list_type = &schema.list_type;
    if let Some(schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            check(item, same_item(item, old, list_type), schema, &format!("{path}[{index}]"), errors);
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = schema.constraints.min_items.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        errors.push(error(ErrorType::Invalid, path, size, detail));
    }
    if let Some(max) = schema.constraints.max_items.filter(|max| size > *max) {
        errors.push(too_many(path, size, max));
    }
}

/// Returns the item of the old list with the same keys. Items of other lists have no identity.
fn same_item<'a>(item: &Value, old: Option<&'a Value>, list_type: &ListType) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else { return None };
    let key = key_of(item, keys);
    old?.as_array()?.iter().find(|old| key_of(old, keys) == key)
}

fn too_many(path: &str, size: i64, max: i64) -> FieldError {
    error(
        ErrorType::TooMany,
        path,
        size,
        format!("must have at most {max} item{}", if max == 1 { "" } else { "s" }),
    )
}

fn check_enum(value: &Value, constraints: &Constraints, path: &str, errors: &mut Vec<FieldError>) {
    let supported = &constraints.one_of_values;
    if supported.is_empty() || supported.contains(value) {
        return;
    }
    let names: Vec<String> = supported
        .iter()
        .map(|value| {
            value.as_str().map_or_else(|| format!("{:?}", value.to_string()), |text| format!("{text:?}"))
        })
        .collect();
    let detail = format!("supported values: {}", names.join(", "));
    errors.push(error(ErrorType::NotSupported, path, value.clone(), detail));
}

fn check_members(
    members: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let constraints = &schema.constraints;
    let size = i64::try_from(members.len()).unwrap_or(i64::MAX);
    if let Some(min) = constraints.min_properties.filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        errors.push(error(ErrorType::Invalid, path, size, detail));
    }
    if let Some(max) = constraints.max_properties.filter(|max| size > *max) {
        errors.push(too_many(path, size, max));
    }
    if let Additional::Schema(additional) = &schema.additional {
        for (name, member) in members.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
            check(member, old.and_then(|old| old.get(name)), additional, &child(path, name), errors);
        }
    }
    for (name, schema) in &schema.properties {
        if let Some(member) = members.get(name) {
            check(member, old.and_then(|old| old.get(name)), schema, &child(path, name), errors);
        }
    }
    for name in constraints.required.iter().filter(|name| !members.contains_key(*name)) {
        errors.push(error(ErrorType::Required, &child(path, name), "", String::new()));
    }
}

/// Returns the errors of `status` against the schema of the object.
pub(super) fn status(object: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    match (at(object, &["status"]), schema.properties.get("status")) {
        (Some(status), Some(schema)) => {
            let old = at(old, &["status"]);
            let mut errors = against_schema(status, old, schema, "status");
            errors.extend(new_duplicates(status, old, schema, "status"));
            errors.extend(embedded_resources(status, schema, "status"));
            errors
        }
        _ => Vec::new(),
    }
}
