//! Schemas of CustomResourceDefinitions: they must be structural and use only supported features.
//!
//! Upstream counterpart: `ValidateCustomResourceDefinitionOpenAPISchema`, and the packages `schema` and `defaulting` of
//! `apiextensions-apiserver/pkg/apiserver`.

use serde_json::{Value, json};

use super::{
    path::{Errors, Path},
    read::{flag, list, text, texts},
};
use crate::{
    custom, go_regex,
    json::{at, bool_at, str_at},
};

/// Types of values, as listed in messages.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Keywords that are allowed at the root of the schema of a kind with a status.
const ROOT_KEYWORDS: &str = "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength \
                             minLength pattern maxItems minItems uniqueItems multipleOf required items properties \
                             externalDocs example x-kubernetes-preserve-unknown-fields x-kubernetes-validations";
const GO_ROOT_KEYWORDS: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
                                MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items \
                                Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Extensions of a schema.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const VALIDATIONS: &str = "x-kubernetes-validations";

/// Position of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Validates the schema of a version. `has_status` is `true` if the version has the status subresource.
pub(super) fn check(schema: &Value, has_status: bool, path: &Path<'_>, errors: &mut Errors) {
    let before = errors.0.len();
    if has_status {
        let ty = text(schema, "type");
        if ty != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                          enabled";
            errors.invalid(&path.child("type"), ty, detail);
        }
        let is_allowed = |name: &String| ROOT_KEYWORDS.split_whitespace().any(|allowed| allowed == name);
        if schema.as_object().is_some_and(|members| !members.keys().all(is_allowed)) {
            let detail = format!(
                "only {GO_ROOT_KEYWORDS} fields are allowed at the root of the schema if the status subresource is \
                 enabled"
            );
            errors.invalid(path, schema.clone(), detail);
        }
    }
    if flag(schema, "nullable") {
        errors.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    keywords(schema, path, errors);
    structure(schema, Level::Root, path, errors);
    #[cfg(feature = "cel")]
    if errors.0.len() == before {
        super::definition_rules::check(schema, path, errors);
    }
    if errors.0.len() == before {
        defaults(schema, path, errors);
    }
}

/// Calls `visit` with each schema directly below `schema` and its path.
fn below(schema: &Value, path: &Path<'_>, visit: &mut dyn FnMut(&Value, &Path<'_>)) {
    for field in ["properties", "patternProperties", "definitions"] {
        let path = path.child(field);
        for (name, schema) in schema.get(field).and_then(Value::as_object).into_iter().flatten() {
            visit(schema, &path.key(name));
        }
    }
    for field in ["items", "additionalProperties", "not"] {
        if let Some(schema) = schema.get(field).filter(|schema| schema.is_object()) {
            visit(schema, &path.child(field));
        }
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        let path = path.child(field);
        for (index, schema) in list(schema, field).iter().enumerate() {
            visit(schema, &path.index(index));
        }
    }
}

/// Validates the keywords of a schema and of all schemas below it.
fn keywords(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), detail);
    }
    let has_properties =
        at(schema, &["properties"]).and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    if has_properties
        && schema.get("additionalProperties").is_some_and(|additional| *additional != json!(true))
    {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.forbidden(&path.child("additionalProperties"), detail);
    }
    below(schema, path, &mut |schema, path| keywords(schema, path, errors));

    if schema.get(PRESERVE) == Some(&json!(false)) {
        errors.invalid(&path.child(PRESERVE), false, "must be true or undefined");
    }
    let ty = text(schema, "type");
    for (extension, expected) in [(MAP_TYPE, "object"), (LIST_TYPE, "array")] {
        if !text(schema, extension).is_empty() && ty != expected {
            wrong_type(ty, &format!("must be {expected} if {extension} is specified"), path, errors);
        }
    }
    if !matches!(text(schema, MAP_TYPE), "" | "atomic" | "granular") {
        errors.not_supported(&path.child(MAP_TYPE), text(schema, MAP_TYPE), &["atomic", "granular"]);
    }
    list_type(schema, path, errors);

    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.not_supported(&path.child("type"), ty, &TYPES);
    }
    for (field, shown) in [
        ("id", "id is"),
        ("additionalItems", "additionalItems is"),
        ("patternProperties", "patternProperties is"),
        ("definitions", "definitions is"),
        ("dependencies", "dependencies is"),
        ("$ref", "$ref is"),
    ] {
        if schema.get(field).is_some() {
            errors.forbidden(&path.child(field), format!("{shown} not supported"));
        }
    }
    if schema.get("items").is_some_and(Value::is_array) {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    // DEVIATION: upstream always evaluates the rules.
    if cfg!(not(feature = "cel")) && !list(schema, VALIDATIONS).is_empty() {
        let detail = "CEL validation rules require the feature `cel` of the embedded API server; enable it, or remove \
                      them from the schema";
        errors.forbidden(&path.child(VALIDATIONS), detail);
    }
}

fn wrong_type(ty: &str, detail: &str, path: &Path<'_>, errors: &mut Errors) {
    if ty.is_empty() {
        errors.required(&path.child("type"), detail);
    } else {
        errors.invalid(&path.child("type"), ty, detail);
    }
}

fn list_type(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(schema, LIST_TYPE);
    let items = schema.get("items").filter(|items| items.is_object());
    if ty == "set"
        && let Some(items) = items
    {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let items_path = path.child("items");
        match text(items, "type") {
            "array" if !matches!(text(items, LIST_TYPE), "" | "atomic") => {
                errors.invalid(&items_path.child(LIST_TYPE), text(items, LIST_TYPE), detail);
            }
            "object" if text(items, MAP_TYPE) != "atomic" => {
                errors.invalid(&items_path.child(MAP_TYPE), Value::Null, detail);
            }
            _ => {}
        }
    }
    if !matches!(ty, "" | "atomic" | "set" | "map") {
        errors.not_supported(&path.child(LIST_TYPE), ty, &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = texts(schema, LIST_MAP_KEYS).collect();
    if !keys.is_empty() && ty != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        if ty.is_empty() {
            errors.required(&path.child(LIST_TYPE), detail);
        } else {
            errors.invalid(&path.child(LIST_TYPE), ty, detail);
        }
    }
    if ty == "map" {
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.required(&path.child(LIST_MAP_KEYS), detail);
        }
        match items {
            None => {
                errors.required(&path.child("items"), "must have a schema if x-kubernetes-list-type is map");
            }
            Some(items) if text(items, "type") == "object" => list_keys(&keys, items, path, errors),
            Some(items) => {
                let detail = "must be object if parent array's x-kubernetes-list-type is map";
                let items_path = path.child("items");
                errors.invalid(&items_path.child("type"), text(items, "type"), detail);
            }
        }
    }
    if matches!(ty, "set" | "map") && items.is_some_and(|items| flag(items, "nullable")) {
        let items_path = path.child("items");
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {ty}");
        errors.forbidden(&items_path.child("nullable"), detail);
    }
}

fn list_keys(keys: &[&str], items: &Value, path: &Path<'_>, errors: &mut Errors) {
    let items_path = path.child("items");
    let properties_path = items_path.child("properties");
    for (index, key) in keys.iter().enumerate() {
        let key_path = properties_path.key(key);
        match at(items, &["properties", key]) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.invalid(&path.child(LIST_MAP_KEYS), json!(keys), detail);
            }
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.invalid(&key_path.child("type"), text(items, "type"), detail);
                }
                if !texts(items, "required").any(|name| name == *key) && property.get("default").is_none() {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                                  required property";
                    errors.required(&key_path.child("default"), detail);
                }
                if flag(property, "nullable") {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.forbidden(&key_path.child("nullable"), detail);
                }
            }
        }
        if keys[..index].contains(key) {
            errors.invalid(&path.child(LIST_MAP_KEYS), json!(keys), "must not contain duplicate entries");
        }
    }
}

/// Validates that the schema is structural.
fn structure(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(schema, "type");
    let items = schema.get("items").filter(|items| items.is_object());
    if ty == "array" && items.is_none() {
        errors.required(&path.child("items"), "must be specified");
    }
    if let Some(items) = items {
        structure(items, Level::Item, &path.child("items"), errors);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties_path = path.child("properties");
    for (name, property) in properties.into_iter().flatten() {
        structure(property, Level::Field, &properties_path.key(name), errors);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        if level == Level::Root {
            errors.forbidden(&path.child("additionalProperties"), "must not be used at the root");
        }
        if additional.is_object() {
            structure(additional, Level::Field, &path.child("additionalProperties"), errors);
        }
        if bool_at(schema, &[EMBEDDED]) {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.forbidden(&path.child("additionalProperties"), detail);
        }
    }
    let has = |extension: &str| bool_at(schema, &[extension]);
    if has(INT_OR_STRING) && has(PRESERVE) {
        errors.invalid(&path.child(PRESERVE), true, "must be false if x-kubernetes-int-or-string is true");
    }
    if has(INT_OR_STRING) && has(EMBEDDED) {
        errors.invalid(&path.child(EMBEDDED), true, "must be false if x-kubernetes-int-or-string is true");
    }
    junctors(schema, is_int_or_string(list(schema, "anyOf")), path, errors);

    if has(EMBEDDED) && ty != "object" {
        wrong_type(ty, "must be object if x-kubernetes-embedded-resource is true", path, errors);
    } else if ty.is_empty() && !has(INT_OR_STRING) && !has(PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&path.child("type"), detail);
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.invalid(&path.child("type"), ty, "must be object at the root");
    }
    if level == Level::Root || has(EMBEDDED) {
        metadata(schema, level, &properties_path, errors);
    }
    if has(EMBEDDED) && !has(PRESERVE) && properties.is_none_or(serde_json::Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.required(&properties_path, detail);
    }
}

/// Validates the properties `apiVersion`, `kind` and `metadata` of an object.
fn metadata(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    for (name, expected) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(property) = at(schema, &["properties", name]) else { continue };
        if text(property, "type") != expected {
            let path = path.key(name);
            errors.invalid(&path.child("type"), text(property, "type"), format!("must be {expected}"));
        }
    }
    let Some(metadata) = at(schema, &["properties", "metadata"]).filter(|_| level == Level::Root) else {
        return;
    };
    let is_described = |name: &String| matches!(name.as_str(), "type" | "properties" | "description");
    let restricts_names = |name: &String| matches!(name.as_str(), "name" | "generateName");
    let properties = metadata.get("properties").and_then(Value::as_object);
    let is_allowed = metadata.as_object().is_some_and(|members| members.keys().all(is_described))
        && properties.is_none_or(|properties| properties.keys().all(restricts_names));
    if !is_allowed {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&path.key("metadata"), detail);
    }
}

fn is_int_or_string(any_of: &[Value]) -> bool {
    *any_of == [json!({"type": "integer"}), json!({"type": "string"})]
}

/// Validates the schemas below `allOf`, `anyOf`, `oneOf` and `not`, which may only restrict values.
fn junctors(schema: &Value, skips_any_of: bool, path: &Path<'_>, errors: &mut Errors) {
    for field in ["anyOf", "allOf", "oneOf"] {
        let path = path.child(field);
        for (index, nested) in list(schema, field).iter().enumerate() {
            if field == "anyOf" && skips_any_of {
                continue;
            }
            let skips = field == "allOf" && index == 0 && is_int_or_string(list(nested, "anyOf"));
            restriction(nested, skips, &path.index(index), errors);
        }
    }
    if let Some(not) = schema.get("not") {
        restriction(not, false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = go_regex::compile(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(&path.child("pattern"), pattern, detail);
    }
}

fn restriction(schema: &Value, skips_any_of: bool, path: &Path<'_>, errors: &mut Errors) {
    junctors(schema, skips_any_of, path, errors);
    if let Some(items) = schema.get("items") {
        restriction(items, false, &path.child("items"), errors);
    }
    let properties_path = path.child("properties");
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        restriction(property, false, &properties_path.key(name), errors);
    }
    for (field, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (PRESERVE, "must be false to be structural"),
        (EMBEDDED, "must be false to be structural"),
        (INT_OR_STRING, "must be false to be structural"),
        (LIST_MAP_KEYS, "must be empty to be structural"),
        (LIST_TYPE, "must be undefined to be structural"),
        (MAP_TYPE, "must be undefined to be structural"),
    ] {
        if schema.get(field).is_some() {
            errors.forbidden(&path.child(field), detail);
        }
    }
    if !str_at(schema, &["properties", "metadata", "type"]).is_empty()
        || at(schema, &["properties", "metadata"]).is_some()
    {
        errors.forbidden(&properties_path.key("metadata"), "must not be specified in a nested context");
    }
}

/// Validates default values against their schemas.
fn defaults(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(default) = schema.get("default") {
        let path = path.child("default");
        let found = custom::check_default(default, schema);
        if found.has_unknown_fields {
            errors.invalid(&path, default.clone(), "must not have unknown fields");
        }
        for mut error in found.errors {
            error.field = match error.field.as_str() {
                "<nil>" => path.to_string(),
                field => format!("{path}.{field}"),
            };
            errors.0.push(error);
        }
    }
    below(schema, path, &mut |schema, path| defaults(schema, path, errors));
}
