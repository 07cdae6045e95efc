//! Structural schemas.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/apiserver/schema`.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::{
    go_regex,
    json::{at, bool_at, i64_at, list_at, str_at, type_name},
};

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl SchemaType {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// Schema of the properties that are not listed in `properties`.
#[derive(Debug, Clone, Default)]
pub(crate) enum Additional {
    /// There are none.
    #[default]
    None,
    /// `additionalProperties: true`.
    Any,
    Schema(Box<Schema>),
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    /// List of objects with these `x-kubernetes-list-map-keys`.
    Map(Vec<String>),
}

/// Schema of a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    pub(crate) ty: Option<SchemaType>,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) preserves_unknown_fields: bool,
    pub(crate) is_embedded_resource: bool,
    pub(crate) is_int_or_string: bool,
    pub(crate) list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub(crate) is_atomic_map: bool,
    pub(crate) constraints: Box<Constraints>,
}

/// Constraints on a value, without effect on its structure.
///
/// Upstream counterpart: `schema.ValueValidation`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Constraints {
    pub(crate) format: String,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) one_of_values: Vec<Value>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

impl Schema {
    /// Reads a validated `JSONSchemaProps`.
    pub(crate) fn parse(props: &Value) -> Self {
        let extension = |name: &str| bool_at(props, &[name]);
        let properties = at(props, &["properties"]).and_then(Value::as_object).into_iter().flatten();
        Self {
            ty: SchemaType::parse(str_at(props, &["type"])),
            properties: properties.map(|(name, schema)| (name.clone(), Self::parse(schema))).collect(),
            additional: match at(props, &["additionalProperties"]) {
                Some(Value::Bool(true)) => Additional::Any,
                Some(schema @ Value::Object(_)) => Additional::Schema(Box::new(Self::parse(schema))),
                _ => Additional::None,
            },
            items: at(props, &["items"])
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::parse(items))),
            nullable: extension("nullable"),
            default: at(props, &["default"]).cloned(),
            preserves_unknown_fields: extension("x-kubernetes-preserve-unknown-fields"),
            is_embedded_resource: extension("x-kubernetes-embedded-resource"),
            is_int_or_string: extension("x-kubernetes-int-or-string"),
            list_type: match str_at(props, &["x-kubernetes-list-type"]) {
                "set" => ListType::Set,
                "map" => ListType::Map(texts(props, "x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            is_atomic_map: str_at(props, &["x-kubernetes-map-type"]) == "atomic",
            constraints: Box::new(Constraints::parse(props)),
        }
    }

    /// Schema of a member of an object, if it has one.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::None | Additional::Any => None,
        })
    }
}

impl Constraints {
    fn parse(props: &Value) -> Self {
        let number = |name: &str| at(props, &[name]).and_then(Value::as_f64);
        let integer = |name: &str| i64_at(props, &[name]);
        let schemas = |name: &str| list_at(props, &[name]).iter().map(Schema::parse).collect();
        Self {
            format: str_at(props, &["format"]).to_owned(),
            maximum: number("maximum"),
            exclusive_maximum: bool_at(props, &["exclusiveMaximum"]),
            minimum: number("minimum"),
            exclusive_minimum: bool_at(props, &["exclusiveMinimum"]),
            max_length: integer("maxLength"),
            min_length: integer("minLength"),
            pattern: Some(str_at(props, &["pattern"])).filter(|text| !text.is_empty()).and_then(|text| {
                Some(Pattern { text: text.to_owned(), regex: go_regex::compile(text).ok()? })
            }),
            max_items: integer("maxItems"),
            min_items: integer("minItems"),
            multiple_of: number("multipleOf"),
            max_properties: integer("maxProperties"),
            min_properties: integer("minProperties"),
            required: texts(props, "required"),
            one_of_values: list_at(props, &["enum"]).to_vec(),
            all_of: schemas("allOf"),
            one_of: schemas("oneOf"),
            any_of: schemas("anyOf"),
            not: at(props, &["not"]).filter(|not| not.is_object()).map(Schema::parse),
        }
    }
}

/// Pattern of a string, as given and compiled.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) regex: Regex,
}

pub(crate) fn texts(value: &Value, name: &str) -> Vec<String> {
    list_at(value, &[name]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Type of a keyword's value in a `JSONSchemaProps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyword {
    Text,
    Bool,
    Integer,
    Number,
    Any,
    Texts,
    Values,
    /// `externalDocs`, `x-kubernetes-validations`: read as they are.
    Raw,
    Schema,
    SchemaOrBool,
    SchemaOrList,
    Schemas,
    Properties,
}

fn keyword(name: &str) -> Option<Keyword> {
    Some(match name {
        "id"
        | "$schema"
        | "$ref"
        | "description"
        | "type"
        | "format"
        | "title"
        | "pattern"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => Keyword::Text,
        "exclusiveMaximum"
        | "exclusiveMinimum"
        | "uniqueItems"
        | "nullable"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-embedded-resource"
        | "x-kubernetes-int-or-string" => Keyword::Bool,
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" => {
            Keyword::Integer
        }
        "maximum" | "minimum" | "multipleOf" => Keyword::Number,
        "default" | "example" => Keyword::Any,
        "required" | "x-kubernetes-list-map-keys" => Keyword::Texts,
        "enum" => Keyword::Values,
        "externalDocs" | "dependencies" | "x-kubernetes-validations" => Keyword::Raw,
        "not" => Keyword::Schema,
        "additionalProperties" | "additionalItems" => Keyword::SchemaOrBool,
        "items" => Keyword::SchemaOrList,
        "allOf" | "oneOf" | "anyOf" => Keyword::Schemas,
        "properties" | "patternProperties" | "definitions" => Keyword::Properties,
        _ => return None,
    })
}

/// Brings the schemas of a decoded CustomResourceDefinition into normal form: unknown keywords are removed and added to
/// `strict_errors`; zero values that Go omits are removed.
///
/// # Errors
///
/// A keyword's value has another type. The message is the detail of Go's decoding error.
pub(crate) fn normalize_definition(
    definition: &mut Value,
    strict_errors: &mut Vec<String>,
) -> Result<(), String> {
    let Some(Value::Array(versions)) = definition.pointer_mut("/spec/versions") else { return Ok(()) };
    for (index, version) in versions.iter_mut().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            normalize(schema, &path, strict_errors)?;
        }
    }
    Ok(())
}

fn normalize(schema: &mut Value, path: &str, strict_errors: &mut Vec<String>) -> Result<(), String> {
    let found = type_name(schema);
    let Value::Object(members) = schema else {
        return Err(format!(
            "json: cannot unmarshal {found} into Go struct field {path} of type v1.JSONSchemaProps"
        ));
    };
    let mut result = Ok(());
    members.retain(|name, value| {
        let Some(keyword) = keyword(name) else {
            strict_errors.push(format!("unknown field \"{path}.{name}\""));
            return false;
        };
        if value.is_null() {
            return false;
        }
        let kept = normalize_keyword(keyword, value, &format!("{path}.{name}"), strict_errors);
        kept.unwrap_or_else(|error| {
            result = Err(error);
            true
        })
    });
    result
}

/// Normalizes a value. Returns `false` if Go omits it.
fn normalize_keyword(
    keyword: Keyword,
    value: &mut Value,
    path: &str,
    strict_errors: &mut Vec<String>,
) -> Result<bool, String> {
    let expected = match (keyword, &mut *value) {
        (Keyword::Any | Keyword::Raw, _) => return Ok(true),
        (Keyword::Text, Value::String(text)) => return Ok(!text.is_empty()),
        // Upstream has a pointer for `x-kubernetes-preserve-unknown-fields` and rejects `false`.
        (Keyword::Bool, Value::Bool(set)) => {
            return Ok(*set || path.ends_with(".x-kubernetes-preserve-unknown-fields"));
        }
        (Keyword::Integer, Value::Number(number)) if number.is_i64() => return Ok(true),
        (Keyword::Number, Value::Number(_)) => return Ok(true),
        (Keyword::Texts, Value::Array(list)) if list.iter().all(Value::is_string) => {
            return Ok(!list.is_empty());
        }
        (Keyword::Values, Value::Array(list)) => return Ok(!list.is_empty()),
        (Keyword::SchemaOrBool, Value::Bool(_)) => return Ok(true),
        (Keyword::Schema | Keyword::SchemaOrBool | Keyword::SchemaOrList, schema @ Value::Object(_)) => {
            return normalize(schema, path, strict_errors).map(|()| true);
        }
        (Keyword::Schemas | Keyword::SchemaOrList, Value::Array(schemas)) => {
            for (index, schema) in schemas.iter_mut().enumerate() {
                normalize(schema, &format!("{path}[{index}]"), strict_errors)?;
            }
            return Ok(!schemas.is_empty());
        }
        (Keyword::Properties, Value::Object(schemas)) => {
            for (name, schema) in schemas.iter_mut() {
                normalize(schema, &format!("{path}.{name}"), strict_errors)?;
            }
            return Ok(!schemas.is_empty());
        }
        (Keyword::Text, _) => "string",
        (Keyword::Bool, _) => "bool",
        (Keyword::Integer, _) => "int64",
        (Keyword::Number, _) => "float64",
        (Keyword::Texts, _) => "[]string",
        (Keyword::Values, _) => "[]v1.JSON",
        (Keyword::Schemas, _) => "[]v1.JSONSchemaProps",
        (Keyword::Properties, _) => "map[string]v1.JSONSchemaProps",
        (Keyword::Schema | Keyword::SchemaOrBool | Keyword::SchemaOrList, _) => "v1.JSONSchemaProps",
    };
    Err(format!("json: cannot unmarshal {} into Go struct field {path} of type {expected}", type_name(value)))
}
