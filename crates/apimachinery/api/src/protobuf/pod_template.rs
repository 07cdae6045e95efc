//! Protobuf of pod templates, by the schema.

use std::{borrow::Cow, collections::BTreeMap, iter};

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};
use serde_json::value::RawValue;

use super::{Message, MessageBuilder, ProtobufError, Value, scalars};
use crate::{
    decoded::{Decoded, DecodedStruct},
    quantity::Quantity,
    schema::{Schema, Shape, Struct, TypeId, Version},
    template::metadata::TemplateMeta,
};

/// Encodes a pod template, a `PodTemplateSpec`. Returns `None` if it has a field or a value that this version does not
/// define: protobuf cannot carry it.
pub(crate) fn encode(template: &str) -> Option<Vec<u8>> {
    let schema = Schema::of(Version::default());
    let template = Decoded::template(schema, &mut serde_json::Deserializer::from_str(template)).ok()?;
    match (&schema.type_(schema.root()).shape, &template) {
        (_, Decoded::Unset) => Some(Vec::new()),
        (Shape::Struct(shape), Decoded::Struct(object)) => {
            Encoder { schema }.message(shape, object).map(MessageBuilder::into_vec)
        }
        _ => None,
    }
}

/// Encodes `spec` of a pod template, as [`encode`].
pub(crate) fn encode_spec(template: &str) -> Option<Vec<u8>> {
    let schema = Schema::of(Version::default());
    let mut template = Decoded::template(schema, &mut serde_json::Deserializer::from_str(template)).ok()?;
    let Decoded::Struct(_) = &template else { return None };
    match template.at_mut(schema, &["spec"])? {
        Decoded::Unset => Some(Vec::new()),
        Decoded::Struct(spec) => {
            let Shape::Struct(root) = &schema.type_(schema.root()).shape else { return None };
            let type_ = root.fields.iter().find(|field| field.json.as_deref() == Some("spec"))?.type_;
            let Shape::Struct(shape) = &schema.type_(type_).shape else { return None };
            Encoder { schema }.message(shape, spec).map(MessageBuilder::into_vec)
        }
        _ => None,
    }
}

struct Encoder<'s> {
    schema: &'s Schema,
}

impl Encoder<'_> {
    fn message(&self, shape: &Struct, object: &DecodedStruct<'_>) -> Option<MessageBuilder> {
        if !object.unknown.is_empty() {
            return None;
        }
        let mut message = MessageBuilder::default();
        for (field, value) in shape.fields.iter().zip(&object.fields) {
            if !matches!(value, Decoded::Unset) {
                self.field(&mut message, field.number?, field.type_, value)?;
            }
        }
        Some(message)
    }

    fn field(
        &self,
        message: &mut MessageBuilder,
        number: u32,
        type_: TypeId,
        value: &Decoded<'_>,
    ) -> Option<()> {
        match (&self.schema.type_(self.schema.pointee(type_)).shape, value) {
            (Shape::List(inner), Decoded::List(items)) => {
                for item in items {
                    self.single(message, number, *inner, item)?;
                }
                Some(())
            }
            (Shape::Map(inner), Decoded::Map(entries)) => {
                for (key, value) in entries {
                    let mut entry = MessageBuilder::default();
                    entry.bytes(1, &**key);
                    self.single(&mut entry, 2, *inner, value)?;
                    message.bytes(number, &entry);
                }
                Some(())
            }
            _ => self.single(message, number, type_, value),
        }
    }

    /// Adds a value that is neither list nor map. An unset one is the zero value of its type: as an item, it counts.
    #[expect(clippy::cast_sign_loss, reason = "negative numbers have the sign bit set")]
    fn single(
        &self,
        message: &mut MessageBuilder,
        number: u32,
        type_: TypeId,
        value: &Decoded<'_>,
    ) -> Option<()> {
        let mut inner = MessageBuilder::default();
        match (&self.schema.type_(self.schema.pointee(type_)).shape, value) {
            (Shape::Bool, Decoded::Bool(value)) => {
                message.varint(number, u64::from(*value));
                return Some(());
            }
            (Shape::Int32 | Shape::Int64, Decoded::Int(value)) => {
                message.varint(number, *value as u64);
                return Some(());
            }
            (Shape::Bool | Shape::Int32 | Shape::Int64, Decoded::Unset) => {
                message.varint(number, 0);
                return Some(());
            }
            (Shape::Text, Decoded::Text(text)) => {
                message.bytes(number, &**text);
                return Some(());
            }
            (Shape::Struct(shape), Decoded::Struct(object)) => inner = self.message(shape, object)?,
            (Shape::Quantity, Decoded::Quantity(quantity)) => {
                inner.bytes(1, quantity.to_string());
            }
            (Shape::Quantity, Decoded::Unset) => {
                inner.bytes(1, Quantity::default().to_string());
            }
            (Shape::IntOrString, Decoded::IntOrString(value)) => inner = scalars::int_or_string(value),
            (Shape::Time, Decoded::Time(time)) => {
                let nanoseconds = time.as_nanosecond().rem_euclid(1_000_000_000);
                let seconds = time.as_nanosecond().div_euclid(1_000_000_000);
                inner.varint(1, i64::try_from(seconds).ok()? as u64);
                inner.varint(2, u64::try_from(nanoseconds).ok()?);
            }
            (Shape::RawJson, Decoded::RawJson(json)) => {
                inner.bytes(1, &**json);
            }
            (Shape::Text | Shape::Struct(_) | Shape::IntOrString | Shape::Time, Decoded::Unset) => {}
            // A value of the wrong type. No type has lists of lists.
            _ => return None,
        }
        message.bytes(number, &inner);
        Some(())
    }
}

/// Decodes a pod template.
///
/// # Errors
///
/// If the message is malformed, or has a field or a value that this version does not define.
pub(crate) fn decode<'a>(schema: &Schema, message: &'a [u8]) -> Result<Decoded<'a>, ProtobufError> {
    let mut template = Decoded::Unset;
    Decoder { schema }.message(schema.root(), Message::new(message), &mut template)?;
    Ok(template)
}

struct Decoder<'s> {
    schema: &'s Schema,
}

impl<'a> Decoder<'_> {
    fn message(
        &self,
        type_: TypeId,
        message: Message<'a>,
        into: &mut Decoded<'a>,
    ) -> Result<(), ProtobufError> {
        let type_ = self.schema.type_(self.schema.pointee(type_));
        let Shape::Struct(shape) = &type_.shape else { return Err(invalid(&type_.name)) };
        let mut object = into.take_struct(shape);
        for field in message {
            let (number, value) = field?;
            let index = shape.by_number(number);
            let place = index.and_then(|index| shape.fields.get(index).zip(object.fields.get_mut(index)));
            let Some((field, place)) = place else {
                return Err(ProtobufError::UnknownField { message: type_.name.clone(), number });
            };
            self.field(field.type_, value, place)?;
        }
        *into = Decoded::Struct(object);
        Ok(())
    }

    fn field(&self, type_: TypeId, value: Value<'a>, into: &mut Decoded<'a>) -> Result<(), ProtobufError> {
        match &self.schema.type_(self.schema.pointee(type_)).shape {
            Shape::List(inner) => {
                let mut item = Decoded::Unset;
                self.single(*inner, value, &mut item)?;
                match into {
                    Decoded::List(items) => items.push(item),
                    _ => *into = Decoded::List(vec![item]),
                }
                Ok(())
            }
            Shape::Map(inner) => {
                let (mut key, mut item) = (Cow::Borrowed(""), Decoded::Unset);
                for field in value.message()? {
                    match field? {
                        (1, value) => key = Cow::Borrowed(value.text()?),
                        (2, value) => self.single(*inner, value, &mut item)?,
                        (number, _) => {
                            return Err(ProtobufError::UnknownField { message: "map entry".into(), number });
                        }
                    }
                }
                if matches!(item, Decoded::Unset) {
                    // The zero value: an entry without content.
                    self.zero(*inner, &mut item);
                }
                let Decoded::Map(entries) = into else {
                    *into = Decoded::Map(vec![(key, item)]);
                    return Ok(());
                };
                match entries.binary_search_by(|(present, _)| present.cmp(&key)) {
                    Ok(index) => entries[index].1 = item,
                    Err(index) => entries.insert(index, (key, item)),
                }
                Ok(())
            }
            _ => self.single(type_, value, into),
        }
    }

    /// Sets a map's value that the message omits. Only strings and quantities are values of maps.
    fn zero(&self, type_: TypeId, into: &mut Decoded<'a>) {
        if let Shape::Text = self.schema.type_(type_).shape {
            *into = Decoded::Text(Cow::Borrowed(""));
        }
    }

    /// Decodes a value that is neither list nor map.
    fn single(&self, type_: TypeId, value: Value<'a>, into: &mut Decoded<'a>) -> Result<(), ProtobufError> {
        let pointee = self.schema.type_(self.schema.pointee(type_));
        *into = match &pointee.shape {
            Shape::Bool => Decoded::Bool(value.bool()?),
            Shape::Int32 => Decoded::Int(value.int32()?.into()),
            Shape::Int64 => Decoded::Int(value.int64()?),
            Shape::Text => Decoded::Text(Cow::Borrowed(value.text()?)),
            Shape::Struct(_) => return self.message(type_, value.message()?, into),
            Shape::Quantity => {
                let text = only_text(&pointee.name, value)?;
                Decoded::Quantity(Box::new(text.parse().map_err(|_| invalid(&pointee.name))?))
            }
            Shape::IntOrString => Decoded::IntOrString(scalars::decode_int_or_string(value)?),
            Shape::Time => match scalars::time(value)? {
                Some(time) => Decoded::Time(time),
                None => Decoded::Unset,
            },
            Shape::RawJson => {
                let json = only_text(&pointee.name, value)?;
                serde_json::from_str::<&RawValue>(json).map_err(|_| invalid(&pointee.name))?;
                Decoded::RawJson(json.into())
            }
            Shape::Pointer(_) | Shape::List(_) | Shape::Map(_) => return Err(invalid(&pointee.name)),
        };
        Ok(())
    }
}

/// Checks that all fields of a template are defined, and returns the metadata that pods inherit.
pub(crate) fn metadata(message: &[u8]) -> Result<TemplateMeta, ProtobufError> {
    let schema = Schema::of(Version::default());
    let mut template = decode(schema, message)?;
    let mut entries = |name| match template.at_mut(schema, &["metadata", name]) {
        Some(Decoded::Map(entries)) => entries.iter().filter_map(text_entry).collect(),
        _ => BTreeMap::new(),
    };
    let (labels, annotations) = (entries("labels"), entries("annotations"));
    let finalizers = match template.at_mut(schema, &["metadata", "finalizers"]) {
        Some(Decoded::List(items)) => items.iter().filter_map(text).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    Ok(TemplateMeta { labels, annotations, finalizers })
}

fn text<'d>(value: &'d Decoded<'_>) -> Option<&'d str> {
    if let Decoded::Text(text) = value { Some(text) } else { None }
}

fn text_entry((key, value): &(Cow<'_, str>, Decoded<'_>)) -> Option<(String, String)> {
    Some((key.to_string(), text(value)?.to_owned()))
}

/// Returns the message of the spec. Several messages of one field are one message when they are joined.
pub(crate) fn spec(message: &[u8]) -> Cow<'_, [u8]> {
    let mut specs = parts(message, SPEC);
    let first = specs.next().unwrap_or_default();
    specs.fold(Cow::Borrowed(first), |mut joined, part| {
        joined.to_mut().extend_from_slice(part);
        joined
    })
}

/// Field numbers of `PodTemplateSpec` and `ObjectMeta`.
const METADATA: u32 = 1;
pub(crate) const SPEC: u32 = 2;
const LABELS: u32 = 11;

/// Contents of the field `number`, which is a message.
fn parts(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Message::new(message)
        .flatten()
        .filter(move |(found, _)| *found == number)
        .flat_map(|(_, value)| value.bytes())
}

/// Returns the template with label `key` set to `value`, or removed.
pub(crate) fn with_label(message: &[u8], key: &str, value: Option<&str>) -> Result<Vec<u8>, ProtobufError> {
    let mut metadata = MessageBuilder::default();
    let mut rest: &[u8] = &parts(message, METADATA).collect::<Vec<_>>().concat();
    while !rest.is_empty() {
        let mut fields = Message::new(rest);
        let Some(field) = fields.next() else { break };
        let (number, content) = field?;
        let (field, after) = rest.split_at(rest.len() - fields.rest().len());
        rest = after;
        let is_key = |entry: &[u8]| parts(entry, 1).last().unwrap_or_default() == key.as_bytes();
        if number != LABELS || !is_key(content.bytes()?) {
            metadata.fields(field);
        }
    }
    if let Some(value) = value {
        let mut entry = MessageBuilder::default();
        entry.bytes(1, key).bytes(2, value);
        metadata.bytes(LABELS, &entry);
    }
    let mut template = MessageBuilder::default();
    template.bytes(METADATA, &metadata).bytes(SPEC, spec(message));
    Ok(template.into_vec())
}

/// Returns the JSON of a template that was checked by [`metadata`].
pub(crate) fn to_json(message: &[u8]) -> String {
    let schema = Schema::of(Version::default());
    // The message was checked before, so this does not fail.
    let template = decode(schema, message).unwrap_or_default();
    let json = Json { schema, type_: schema.root(), value: &template };
    serde_json::to_string(&json).unwrap_or_default()
}

/// JSON of a value, as Go writes it: without fields that are unset.
struct Json<'d> {
    schema: &'d Schema,
    type_: TypeId,
    value: &'d Decoded<'d>,
}

impl Json<'_> {
    /// `true` for values that Go's `omitempty` omits.
    fn is_empty(&self) -> bool {
        match (&self.schema.type_(self.type_).shape, self.value) {
            (_, Decoded::Unset) => true,
            (Shape::Pointer(_), _) => false,
            (_, Decoded::Bool(value)) => !value,
            (_, Decoded::Int(number)) => *number == 0,
            (_, Decoded::Text(text)) => text.is_empty(),
            _ => false,
        }
    }

    fn fields<M: SerializeMap>(
        &self,
        shape: &Struct,
        object: &DecodedStruct<'_>,
        map: &mut M,
    ) -> Result<(), M::Error> {
        for (field, value) in shape.fields.iter().zip(&object.fields) {
            let json = Json { schema: self.schema, type_: field.type_, value };
            match (&field.json, &self.schema.type_(field.type_).shape, value) {
                (Some(_), ..) if json.is_empty() => {}
                (Some(name), ..) => map.serialize_entry(&**name, &json)?,
                (None, Shape::Struct(shape), Decoded::Struct(object)) => json.fields(shape, object, map)?,
                (None, ..) => {}
            }
        }
        Ok(())
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = &self.schema.type_(self.schema.pointee(self.type_)).shape;
        let inner = |type_, value| Json { schema: self.schema, type_, value };
        match (shape, self.value) {
            (Shape::Struct(shape), Decoded::Struct(object)) => {
                let mut map = serializer.serialize_map(None)?;
                self.fields(shape, object, &mut map)?;
                map.end()
            }
            (Shape::Struct(_), _) => serializer.collect_map(iter::empty::<((), ())>()),
            (Shape::List(type_), Decoded::List(items)) => {
                serializer.collect_seq(items.iter().map(|item| inner(*type_, item)))
            }
            (Shape::Map(type_), Decoded::Map(entries)) => {
                serializer.collect_map(entries.iter().map(|(key, value)| (key, inner(*type_, value))))
            }
            (_, Decoded::Bool(value)) => serializer.serialize_bool(*value),
            (_, Decoded::Int(number)) => serializer.serialize_i64(*number),
            (_, Decoded::Text(text)) => serializer.serialize_str(text),
            (_, Decoded::Quantity(quantity)) => serializer.collect_str(quantity),
            (_, Decoded::IntOrString(value)) => value.serialize(serializer),
            (_, Decoded::Time(time)) => serializer.collect_str(time),
            (_, Decoded::RawJson(json)) => {
                RawValue::from_string(json.to_string()).map_err(S::Error::custom)?.serialize(serializer)
            }
            _ => serializer.serialize_unit(),
        }
    }
}

fn invalid(type_: &str) -> ProtobufError {
    ProtobufError::Value(type_.into())
}

/// Returns the text of a message that has field 1 only.
fn only_text<'a>(type_: &str, value: Value<'a>) -> Result<&'a str, ProtobufError> {
    let mut text = "";
    for field in value.message()? {
        match field? {
            (1, value) => text = value.text()?,
            (number, _) => return Err(ProtobufError::UnknownField { message: type_.into(), number }),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recorded;

    fn spec(spec: &serde_json::Value) -> Option<Vec<u8>> {
        encode_spec(&json!({ "spec": spec }).to_string())
    }

    #[test]
    fn fields_have_their_numbers() {
        let encoded = spec(
            &json!({"nodeName": "n", "priority": 0, "hostNetwork": true, "containers": [{"name": "c"}]}),
        );
        let expected = [
            &[2 << 3 | 2, 3, 1 << 3 | 2, 1, b'c'][..],
            &[10 << 3 | 2, 1, b'n'],
            &[11 << 3, 1],
            &[25 << 3 & 0x7f | 0x80, 1, 0],
        ];
        let mut encoded = encoded.unwrap();
        encoded.sort_unstable();
        let mut expected = expected.concat();
        expected.sort_unstable();
        assert_eq!(encoded, expected);
    }

    #[test]
    fn templates_without_spec_are_empty() {
        assert_eq!(encode_spec("{}"), Some(Vec::new()));
        assert_eq!(spec(&json!({})), Some(Vec::new()));
        assert_eq!(spec(&json!(null)), Some(Vec::new()));
    }

    /// An unknown field would be lost, at whatever depth.
    #[test]
    fn unknown_fields_and_wrong_types_are_not_encoded() {
        for lost in [
            json!({"futureField": 1}),
            json!({"containers": [{"name": "c", "futureField": null, "env": [{"name": "E", "futureField": {}}]}]}),
            json!({"volumes": [{"name": "v", "futureSource": {}}]}),
            json!({"affinity": {"nodeAffinity": {"futureField": []}}}),
            json!({"priority": "high"}),
            json!({"priority": 1.5}),
            json!({"priority": i64::MAX}),
            json!({"overhead": {"cpu": "many"}}),
            json!({"containers": "c"}),
            json!(5),
        ] {
            assert_eq!(spec(&lost), None, "{lost}");
        }
        // Null is unset, also where the name is unknown.
        assert!(spec(&json!({"futureField": null, "nodeName": null})).is_some());
        assert_eq!(encode_spec("{"), None);
        assert_eq!(encode_spec("null"), None);
    }

    #[test]
    fn recorded_templates_are_encoded() {
        for case in recorded::cases() {
            assert!(encode(&case.template.to_string()).is_some(), "{}", case.template);
        }
    }
}
