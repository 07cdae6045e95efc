//! Schemas of custom resources. They contain themselves, so they are not part of `crate::schema`.
//!
//! Upstream counterpart: `JSONSchemaProps` of `apiextensions/v1`.

use serde_json::{Map, Value, json};

use super::{
    ProtobufError, embedded_json,
    wire::{Payload, Reader},
};

/// Maximum nesting of schemas.
const MAX_DEPTH: usize = 64;

/// Type of a schema's field.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Bool,
    Int,
    Double,
    Json,
    Schema,
    /// A schema or a list of schemas.
    SchemaOrList,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrTexts,
    ExternalDocs,
    Rule,
}

use Type::{
    Bool, Double, ExternalDocs, Int, Json, Rule, Schema, SchemaOrBool, SchemaOrList, SchemaOrTexts, Text,
};

/// Number of occurrences of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Absent if it is zero.
    Plain,
    /// A pointer in Go: may be zero.
    Given,
    List,
    Map,
}

use Shape::{Given, List, Plain};

/// Protobuf number, JSON name, type and shape of a field.
type Field = (u32, &'static str, Type, Shape);

/// Fields of `JSONSchemaProps` in the order of Go.
const SCHEMA: &[Field] = &[
    (1, "id", Text, Plain),
    (2, "$schema", Text, Plain),
    (3, "$ref", Text, Given),
    (4, "description", Text, Plain),
    (5, "type", Text, Plain),
    (6, "format", Text, Plain),
    (7, "title", Text, Plain),
    (8, "default", Json, Given),
    (9, "maximum", Double, Given),
    (10, "exclusiveMaximum", Bool, Plain),
    (11, "minimum", Double, Given),
    (12, "exclusiveMinimum", Bool, Plain),
    (13, "maxLength", Int, Given),
    (14, "minLength", Int, Given),
    (15, "pattern", Text, Plain),
    (16, "maxItems", Int, Given),
    (17, "minItems", Int, Given),
    (18, "uniqueItems", Bool, Plain),
    (19, "multipleOf", Double, Given),
    (20, "enum", Json, List),
    (21, "maxProperties", Int, Given),
    (22, "minProperties", Int, Given),
    (23, "required", Text, List),
    (24, "items", SchemaOrList, Given),
    (25, "allOf", Schema, List),
    (26, "oneOf", Schema, List),
    (27, "anyOf", Schema, List),
    (28, "not", Schema, Given),
    (29, "properties", Schema, Shape::Map),
    (30, "additionalProperties", SchemaOrBool, Given),
    (31, "patternProperties", Schema, Shape::Map),
    (32, "dependencies", SchemaOrTexts, Shape::Map),
    (33, "additionalItems", SchemaOrBool, Given),
    (34, "definitions", Schema, Shape::Map),
    (35, "externalDocs", ExternalDocs, Given),
    (36, "example", Json, Given),
    (37, "nullable", Bool, Plain),
    (38, "x-kubernetes-preserve-unknown-fields", Bool, Given),
    (39, "x-kubernetes-embedded-resource", Bool, Plain),
    (40, "x-kubernetes-int-or-string", Bool, Plain),
    (41, "x-kubernetes-list-map-keys", Text, List),
    (42, "x-kubernetes-list-type", Text, Given),
    (43, "x-kubernetes-map-type", Text, Given),
    (44, "x-kubernetes-validations", Rule, List),
];

/// Position of a keyword in Go's struct. Members of rules, which a schema does not have, follow in their order.
pub(crate) fn position(name: &str) -> usize {
    SCHEMA.iter().chain(RULE).position(|(_, known, ..)| *known == name).unwrap_or(usize::MAX)
}

const EXTERNAL_DOCS: &[Field] = &[(1, "description", Text, Plain), (2, "url", Text, Plain)];

const RULE: &[Field] = &[
    (1, "rule", Text, Given),
    (2, "message", Text, Plain),
    (3, "messageExpression", Text, Plain),
    (4, "reason", Text, Given),
    (5, "fieldPath", Text, Plain),
    (6, "optionalOldSelf", Bool, Given),
];

/// Fields of the types that are a schema or something else.
const SCHEMA_OR_LIST: &[Field] = &[(1, "one", Schema, Given), (2, "other", Schema, List)];
const SCHEMA_OR_BOOL: &[Field] = &[(1, "other", Bool, Given), (2, "one", Schema, Given)];
const SCHEMA_OR_TEXTS: &[Field] = &[(1, "one", Schema, Given), (2, "other", Text, List)];

/// Decodes a schema.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    message(SCHEMA, bytes, MAX_DEPTH).map(Value::Object)
}

fn message(fields: &[Field], bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    let depth = depth.checked_sub(1).ok_or(ProtobufError::TooDeep)?;
    let mut object = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        let Some((_, name, ty, shape)) = fields.iter().find(|(known, ..)| *known == number) else { continue };
        match shape {
            List => {
                let value = single(*ty, number, payload, depth)?;
                match object.entry(*name).or_insert_with(|| json!([])) {
                    Value::Array(list) => list.push(value),
                    other => *other = json!([value]),
                }
            }
            Shape::Map => {
                let (key, value) = entry(*ty, payload.bytes(number)?, depth)?;
                match object.entry(*name).or_insert_with(|| json!({})) {
                    Value::Object(map) => drop(map.insert(key, value)),
                    other => *other = json!({ key: value }),
                }
            }
            Plain | Given => {
                let value = single(*ty, number, payload, depth)?;
                if *shape == Given || (value != "" && value != false) {
                    object.insert((*name).to_owned(), value);
                }
            }
        }
    }
    Ok(object)
}

fn entry(ty: Type, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut value) = ("", json!({}));
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match number {
            1 => key = payload.text(number)?,
            2 => value = single(ty, number, payload, depth)?,
            _ => {}
        }
    }
    Ok((key.to_owned(), value))
}

fn single(ty: Type, number: u32, payload: Payload<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let fields = match ty {
        Text => return payload.text(number).map(Value::from),
        Bool => return Ok(Value::Bool(payload.varint(number)? != 0)),
        #[expect(clippy::cast_possible_wrap, reason = "as protobuf has int64")]
        Int => return Ok(Value::from(payload.varint(number)? as i64)),
        Double => return payload.double(number).map(number_value),
        Json => return embedded_json(number, payload.bytes(number)?),
        Schema => SCHEMA,
        ExternalDocs => EXTERNAL_DOCS,
        Rule => RULE,
        SchemaOrList => SCHEMA_OR_LIST,
        SchemaOrBool => SCHEMA_OR_BOOL,
        SchemaOrTexts => SCHEMA_OR_TEXTS,
    };
    let mut object = message(fields, payload.bytes(number)?, depth)?;
    Ok(match ty {
        // A schema takes precedence over a boolean, a list over a schema, as in Go's `MarshalJSON`.
        SchemaOrBool => object.remove("one").or_else(|| object.remove("other")).unwrap_or(Value::Bool(false)),
        SchemaOrList | SchemaOrTexts => {
            object.remove("other").or_else(|| object.remove("one")).unwrap_or(Value::Null)
        }
        _ => Value::Object(object),
    })
}

/// Writes a whole number without fraction, as Go does.
fn number_value(number: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
