//! Decoder of protobuf request bodies, and encoder of responses.
//!
//! Since 1.32 kubectl commands with a typed client (`create deployment`, `autoscale`, `auth can-i` etc.) send protobuf
//! without fallback to JSON. They accept JSON responses.
//!
//! The decoder is driven by the schema of the API types (`crate::schema`). It has code for wire formats and for types
//! with a different JSON representation, none for single kinds. Its result must be normalized by
//! [`crate::strict::decode_value`].
//!
//! Go writes plain scalars even if they are zero, so a zero means absent unless the Go field is a pointer. Unknown field
//! numbers are skipped, as usual in protobuf; strict validation does not apply. Only a volume of unknown source is
//! rejected: without its source it would become an emptyDir.
//!
//! Upstream counterpart: `runtime/serializer/protobuf`.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::schema::{Field, Presence, SCHEMA, Schema, Struct, StructId, Type, Wire};

mod encode;
mod json_schema;
#[cfg(test)]
mod tests;
mod wire;

#[doc(hidden)]
pub use encode::Message;
pub use encode::encode;
pub(crate) use encode::{encode_text, is_encodable};
pub(crate) use json_schema::position as json_schema_position;
use wire::{Payload, Reader};

/// Magic number at the start of a body.
const PREFIX: &[u8] = b"k8s\0";

/// Invalid protobuf body.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The magic number is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// The body is truncated, or a length exceeds it.
    #[error("protobuf message is cut off")]
    CutOff,
    /// The wire type of a field does not match its type.
    #[error("protobuf field {number} has an unexpected wire type {wire_type}")]
    WireType {
        /// Field number.
        number: u32,
        /// Wire type.
        wire_type: u8,
    },
    /// A string is not UTF-8.
    #[error("protobuf field {number} is not valid UTF-8")]
    Text {
        /// Field number.
        number: u32,
    },
    /// A time is out of range.
    #[error("protobuf field {number} is not a time")]
    Time {
        /// Field number.
        number: u32,
    },
    /// An embedded JSON value is invalid.
    #[error("protobuf field {number} does not contain JSON")]
    Json {
        /// Field number.
        number: u32,
    },
    /// The object in the envelope is not protobuf.
    #[error("the object in the protobuf envelope is {encoding}, which is not supported")]
    Encoding {
        /// Content type of the object.
        encoding: String,
    },
    /// Unknown kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// Group and version in the envelope.
        api_version: String,
        /// Kind in the envelope.
        kind: String,
    },
    /// The schemas of a definition are nested too deeply.
    #[error("schemas are nested too deeply")]
    TooDeep,
    /// A volume has an unknown source.
    #[error("the source of a volume (protobuf field {number}) is not supported")]
    UnknownVolume {
        /// Field number of the source.
        number: u32,
    },
}

/// Decodes an object in an envelope to JSON.
///
/// # Errors
///
/// The body is malformed, of an unknown kind, or contains a volume of unknown source.
///
/// ```
/// # use kcm_apiserver::protobuf;
/// let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x08\x0a\x06\x0a\x04team";
/// let object = protobuf::decode(body)?;
/// assert_eq!(object["metadata"]["name"], "team");
/// # Ok::<(), protobuf::ProtobufError>(())
/// ```
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Envelope::read(body.strip_prefix(PREFIX).ok_or(ProtobufError::Prefix)?)?;
    let Envelope { api_version, kind, raw, .. } = &envelope;
    if let Some(encoding) = envelope.foreign_encoding() {
        return Err(ProtobufError::Encoding { encoding: encoding.to_owned() });
    }
    let id = SCHEMA.kind(api_version, kind).ok_or_else(|| ProtobufError::UnknownKind {
        api_version: (*api_version).to_owned(),
        kind: (*kind).to_owned(),
    })?;
    let mut object = message(&SCHEMA, id, raw)?;
    object.insert("apiVersion".to_owned(), Value::from(*api_version));
    object.insert("kind".to_owned(), Value::from(*kind));
    Ok(Value::Object(object))
}

/// Envelope of an object: `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'b> {
    api_version: &'b str,
    kind: &'b str,
    raw: &'b [u8],
    content_encoding: &'b str,
    content_type: &'b str,
}

impl<'b> Envelope<'b> {
    fn read(bytes: &'b [u8]) -> Result<Self, ProtobufError> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next()? {
            match number {
                1 => {
                    let mut reader = Reader::new(payload.bytes(number)?);
                    while let Some((number, payload)) = reader.next()? {
                        match number {
                            1 => envelope.api_version = payload.text(number)?,
                            2 => envelope.kind = payload.text(number)?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = payload.bytes(number)?,
                3 => envelope.content_encoding = payload.text(number)?,
                4 => envelope.content_type = payload.text(number)?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Encoding or content type of the object, if it is not plain protobuf.
    fn foreign_encoding(&self) -> Option<&'b str> {
        let is_own = matches!(self.content_type, "" | "application/vnd.kubernetes.protobuf");
        [self.content_encoding, if is_own { "" } else { self.content_type }]
            .into_iter()
            .find(|encoding| !encoding.is_empty())
    }
}

/// Decodes a message. Types other than schemas are not recursive, so the depth is bounded.
fn message(schema: &Schema, id: StructId, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
    let within = schema.get(id);
    let mut object = Map::new();
    fields(schema, within, &within.wire, bytes, &mut object)?;
    Ok(object)
}

/// Decodes the fields in `bytes` into `object`. `wire` maps field numbers.
fn fields(
    schema: &Schema,
    within: &Struct,
    wire: &BTreeMap<u32, Wire>,
    bytes: &[u8],
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match wire.get(&number) {
            None => {}
            Some(Wire::Inline(name, inner)) => {
                let bytes = payload.bytes(number)?;
                if *name == "VolumeSource" {
                    known_source(inner, bytes)?;
                }
                fields(schema, within, inner, bytes, object)?;
            }
            Some(Wire::Field(position)) => {
                if let Some(field) = within.fields.get(*position) {
                    read_field(schema, field, number, payload, object)?;
                }
            }
        }
    }
    Ok(())
}

fn known_source(wire: &BTreeMap<u32, Wire>, bytes: &[u8]) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, _)) = reader.next()? {
        if !wire.contains_key(&number) {
            return Err(ProtobufError::UnknownVolume { number });
        }
    }
    Ok(())
}

fn read_field(
    schema: &Schema,
    field: &Field,
    number: u32,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    match &field.ty {
        Type::List(element) => {
            let slot = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = slot {
                elements(schema, element, number, payload, list)?;
            }
        }
        Type::Map(element) => {
            let slot = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = slot {
                let (key, value) = entry(schema, element, payload.bytes(number)?)?;
                map.insert(key, value);
            }
        }
        Type::Any if field.name == "openAPIV3Schema" => {
            object.insert(field.name.to_owned(), json_schema::decode(payload.bytes(number)?)?);
        }
        // The subresource of a definition: a message without fields.
        Type::Any if field.name == "status" => {
            object.insert(field.name.to_owned(), Value::Object(Map::new()));
        }
        ty => {
            let value = single(schema, ty, number, payload)?;
            if field.presence == Presence::Given || !is_zero(&value) {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// Decodes a list element, or several packed numbers.
fn elements(
    schema: &Schema,
    ty: &Type,
    number: u32,
    payload: Payload<'_>,
    list: &mut Vec<Value>,
) -> Result<(), ProtobufError> {
    match (ty, payload) {
        (Type::Int32 | Type::Int64 | Type::Bool, Payload::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                list.push(single(schema, ty, number, Payload::Varint(reader.varint()?))?);
            }
        }
        (ty, payload) => list.push(single(schema, ty, number, payload)?),
    }
    Ok(())
}

/// Decodes a map entry: a message with an optional key and value.
fn entry(schema: &Schema, ty: &Type, bytes: &[u8]) -> Result<(String, Value), ProtobufError> {
    let (mut key, mut value) = ("", None);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match (number, ty) {
            (1, _) => key = payload.text(number)?,
            // Lists of lists have an intermediate message: `ExtraValue{1 items}`.
            (2, Type::List(element)) => {
                let mut list = Vec::new();
                let mut reader = Reader::new(payload.bytes(number)?);
                while let Some((number, payload)) = reader.next()? {
                    elements(schema, element, number, payload, &mut list)?;
                }
                value = Some(Value::Array(list));
            }
            (2, ty) => value = Some(single(schema, ty, number, payload)?),
            _ => {}
        }
    }
    let value = match (value, ty) {
        (Some(value), _) => value,
        (None, Type::Struct(_)) => Value::Object(Map::new()),
        (None, Type::List(_)) => Value::Array(Vec::new()),
        (None, Type::Quantity) => Value::from("0"),
        (None, _) => Value::from(""),
    };
    Ok((key.to_owned(), value))
}

/// Decodes a single value. Null is an unset time.
fn single(schema: &Schema, ty: &Type, number: u32, payload: Payload<'_>) -> Result<Value, ProtobufError> {
    Ok(match ty {
        Type::Bool => Value::Bool(payload.varint(number)? != 0),
        #[expect(clippy::cast_possible_truncation, reason = "as protobuf has int32")]
        Type::Int32 => Value::from(payload.varint(number)? as i32),
        #[expect(clippy::cast_possible_wrap, reason = "as protobuf has int64")]
        Type::Int64 => Value::from(payload.varint(number)? as i64),
        Type::Text => Value::from(payload.text(number)?),
        Type::Bytes => Value::from(STANDARD.encode(payload.bytes(number)?)),
        Type::Time => time(number, payload.bytes(number)?, 0)?,
        Type::MicroTime => time(number, payload.bytes(number)?, 6)?,
        Type::Quantity => quantity(payload.bytes(number)?)?,
        Type::IntOrString => int_or_string(payload.bytes(number)?)?,
        Type::Any => embedded_json(number, payload.bytes(number)?)?,
        Type::Struct(id) => Value::Object(message(schema, *id, payload.bytes(number)?)?),
        Type::List(_) | Type::Map(_) => return Err(payload.unexpected(number)),
    })
}

/// Decodes `{1 seconds, 2 nanos}` to a time with this number of fractional digits. All zero means unset: Go's zero time is
/// long before 1970.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "as protobuf has integers")]
fn time(number: u32, bytes: &[u8], digits: usize) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match number {
            1 => seconds = payload.varint(number)? as i64,
            2 => nanos = payload.varint(number)? as i32,
            _ => {}
        }
    }
    if (seconds, nanos) == (0, 0) {
        return Ok(Value::Null);
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Time { number })?;
    Ok(Value::from(format!("{time:.digits$}")))
}

/// Decodes `{1 string}`.
fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = "0";
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        if number == 1 {
            text = payload.text(number)?;
        }
    }
    Ok(Value::from(text))
}

/// Decodes `{1 type (0 number, 1 string), 2 number, 3 string}`.
#[expect(clippy::cast_possible_truncation, reason = "as protobuf has int32")]
fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut count, mut text) = (false, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next()? {
        match number {
            1 => is_text = payload.varint(number)? != 0,
            2 => count = payload.varint(number)? as i32,
            3 => text = payload.text(number)?,
            _ => {}
        }
    }
    Ok(if is_text { Value::from(text) } else { Value::from(count) })
}

/// Decodes `{1 raw}`: JSON bytes.
fn embedded_json(number: u32, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut value = Value::Null;
    let mut reader = Reader::new(bytes);
    while let Some((inner, payload)) = reader.next()? {
        if inner == 1 {
            let raw = payload.bytes(inner)?;
            value = serde_json::from_slice(raw).map_err(|_| ProtobufError::Json { number })?;
        }
    }
    Ok(value)
}

/// `true` if a plain field with this value equals an absent one. Structs never do.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}
