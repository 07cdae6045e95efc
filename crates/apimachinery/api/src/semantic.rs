//! Semantic equality of pod templates.
//!
//! Upstream counterpart: `apiequality.Semantic.DeepEqual` on decoded templates, as used by `EqualIgnoreHash`
//! (US-4.8). A template is encoded so that semantically equal templates have equal bytes. Only a digest of the bytes
//! is kept, so repeated comparisons are cheap.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    IntOrString,
    decoded::{Decoded, DecodedStruct},
    protobuf::pod_template,
    quantity::Quantity,
    schema::{Schema, Shape, Struct, TypeId, Version},
};

/// Digest of the semantic content of a template.
pub type Digest = [u8; 32];

/// Returns the digest of the semantic content of `template`, with the types of `schema`, without the label `label`.
///
/// Two digests are equal if and only if upstream considers the templates equal. Null, unset, zero and empty are
/// equal, but a pointer to a zero value is set. Quantities are compared by value, times by instant. In addition to
/// upstream, unknown fields and values of the wrong type are compared, as JSON.
pub fn digest_with(schema: &Schema, template: &Value, label: &str) -> Digest {
    match Decoded::template(schema, template) {
        Ok(decoded) => digest(schema, decoded, label),
        // A JSON value always decodes. If it did not, its text would be compared.
        Err(_) => Sha256::digest(template.to_string()).into(),
    }
}

/// Same as [`digest_with`], for JSON text and the default schema.
pub(crate) fn digest_json(json: &str, label: &str) -> Digest {
    let schema = Schema::of(Version::default());
    match Decoded::template(schema, &mut serde_json::Deserializer::from_str(json)) {
        Ok(decoded) => digest(schema, decoded, label),
        Err(_) => Sha256::digest(json).into(),
    }
}

/// Same as [`digest_with`], for a protobuf message and the default schema.
pub(crate) fn digest_message(message: &[u8], label: &str) -> Digest {
    let schema = Schema::of(Version::default());
    match pod_template::decode(schema, message) {
        Ok(decoded) => digest(schema, decoded, label),
        Err(_) => Sha256::digest(message).into(),
    }
}

fn digest(schema: &Schema, mut template: Decoded<'_>, label: &str) -> Digest {
    if let Some(Decoded::Map(labels)) = template.at_mut(schema, &["metadata", "labels"]) {
        labels.retain(|(key, _)| key != label);
    }
    let mut writer = Writer { schema, bytes: Vec::with_capacity(1024) };
    writer.value(schema.root(), &template);
    Sha256::digest(&writer.bytes).into()
}

/// `Nothing` if a value is equal to an unset one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Nothing,
    Something,
}

impl Meaning {
    fn of(is_something: bool) -> Self {
        if is_something { Self::Something } else { Self::Nothing }
    }
}

/// Encodes values so that equal content has equal bytes, and different content has different bytes. Each value has a
/// length or an end mark, and each field that is not empty is preceded by its number.
struct Writer<'a> {
    schema: &'a Schema,
    bytes: Vec<u8>,
}

/// End of a struct. Fields are numbered from 1.
const END: u16 = 0;
/// Precedes an unknown field.
const UNKNOWN: u16 = u16::MAX;
/// Precedes a value of the wrong type. No other value starts with this byte.
const OTHER_TYPE: u8 = b'!';

impl Writer<'_> {
    fn value(&mut self, type_: TypeId, value: &Decoded<'_>) -> Meaning {
        if let Decoded::OtherType(value) = value {
            self.bytes.push(OTHER_TYPE);
            self.json(value);
            return Meaning::Something;
        }
        match &self.schema.type_(type_).shape {
            Shape::Pointer(inner) => {
                let is_set = !matches!(value, Decoded::Unset);
                self.bytes.push(if is_set { b'*' } else { b'-' });
                if is_set {
                    self.value(*inner, value);
                }
                Meaning::of(is_set)
            }
            Shape::List(inner) => {
                let items = if let Decoded::List(items) = value { items.as_slice() } else { &[] };
                self.count(b'[', items.len());
                for item in items {
                    self.value(*inner, item);
                }
                Meaning::of(!items.is_empty())
            }
            Shape::Map(inner) => {
                let entries = if let Decoded::Map(entries) = value { entries.as_slice() } else { &[] };
                self.count(b'm', entries.len());
                for (key, value) in entries {
                    self.text(key);
                    self.value(*inner, value);
                }
                Meaning::of(!entries.is_empty())
            }
            Shape::Struct(shape) => match value {
                Decoded::Struct(object) => self.fields(shape, object),
                _ => self.fields(shape, &DecodedStruct::default()),
            },
            Shape::Bool => {
                let is_true = matches!(value, Decoded::Bool(true));
                self.bytes.push(if is_true { b't' } else { b'f' });
                Meaning::of(is_true)
            }
            Shape::Int32 | Shape::Int64 => {
                let number = if let Decoded::Int(number) = value { *number } else { 0 };
                self.bytes.push(b'i');
                self.bytes.extend(number.to_be_bytes());
                Meaning::of(number != 0)
            }
            Shape::Text => {
                let text = if let Decoded::Text(text) = value { text } else { "" };
                self.text(text);
                Meaning::of(!text.is_empty())
            }
            Shape::Quantity => match value {
                Decoded::Quantity(quantity) => self.quantity(quantity),
                _ => self.quantity(&Quantity::default()),
            },
            Shape::IntOrString => match value {
                Decoded::IntOrString(IntOrString::String(text)) => {
                    self.text(text);
                    Meaning::Something
                }
                Decoded::IntOrString(IntOrString::Int(number)) => self.int(i128::from(*number)),
                _ => self.int(0),
            },
            Shape::Time => match value {
                Decoded::Time(time) => self.int(time.as_nanosecond() - GO_ZERO_TIME),
                _ => self.int(0),
            },
            Shape::RawJson => {
                let text = if let Decoded::RawJson(text) = value { text } else { "" };
                self.text(text);
                Meaning::of(!text.is_empty())
            }
        }
    }

    fn fields(&mut self, shape: &Struct, object: &DecodedStruct<'_>) -> Meaning {
        let start = self.bytes.len();
        for ((field, value), number) in shape.fields.iter().zip(&object.fields).zip(1_u16..) {
            if matches!(value, Decoded::Unset) {
                continue;
            }
            let before = self.bytes.len();
            self.bytes.extend(number.to_be_bytes());
            if self.value(field.type_, value) == Meaning::Nothing {
                self.bytes.truncate(before);
            }
        }
        for (name, value) in &object.unknown {
            self.bytes.extend(UNKNOWN.to_be_bytes());
            self.text(name);
            self.json(value);
        }
        let meaning = Meaning::of(self.bytes.len() > start);
        self.bytes.extend(END.to_be_bytes());
        meaning
    }

    fn quantity(&mut self, quantity: &Quantity) -> Meaning {
        let number = quantity.number();
        self.bytes.push(if number.negative { b'-' } else { b'+' });
        self.text(&number.digits);
        self.bytes.extend(number.exponent.to_be_bytes());
        Meaning::of(!number.digits.is_empty())
    }

    fn int(&mut self, number: i128) -> Meaning {
        self.bytes.push(b'i');
        self.bytes.extend(number.to_be_bytes());
        Meaning::of(number != 0)
    }

    fn text(&mut self, text: &str) {
        self.count(b's', text.len());
        self.bytes.extend(text.as_bytes());
    }

    fn count(&mut self, tag: u8, count: usize) {
        self.bytes.push(tag);
        self.bytes.extend((count as u64).to_be_bytes());
    }

    /// Encodes any JSON, with sorted keys. Null members are omitted, because Go treats them as absent.
    fn json(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes.push(b'0'),
            Value::Bool(value) => self.bytes.push(if *value { b't' } else { b'f' }),
            Value::Number(number) => {
                self.bytes.push(b'n');
                self.text(&number.to_string());
            }
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.count(b'[', items.len());
                items.iter().for_each(|item| self.json(item));
            }
            Value::Object(entries) => {
                // Sorted here: the order of serde_json's maps depends on features that other crates enable.
                let mut entries: Vec<_> = entries.iter().filter(|(_, value)| !value.is_null()).collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                self.count(b'{', entries.len());
                for (key, value) in entries {
                    self.text(key);
                    self.json(value);
                }
            }
        }
    }
}

/// Go's zero time, in nanoseconds since 1970.
const GO_ZERO_TIME: i128 = crate::Time::GO_ZERO.unix() as i128 * 1_000_000_000;

#[cfg(test)]
mod tests;
