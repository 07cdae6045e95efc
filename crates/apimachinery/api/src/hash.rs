//! Pod template hash: the value of the label `pod-template-hash`.
//!
//! Upstream counterpart: `controller.ComputeHash`, which renders the template as a Go value with go-spew and hashes
//! the text (US-3.5). Here the text is passed to the hash function in pieces.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use crate::{
    IntOrString,
    decoded::{Decoded, DecodedStruct},
    protobuf::pod_template,
    quantity::{Amount, Quantity},
    schema::{Schema, Shape, Struct, TypeId, Version},
};

/// Error: a field has the wrong type, so Go could not decode the template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot hash pod template: {path}: {problem}")]
pub struct HashError {
    /// Path of the field.
    pub path: String,
    /// Description of the error.
    pub problem: String,
}

/// Returns the hash of `template`, encoded for the label.
///
/// `collision_count` is the one in the Deployment's status. `None` and `Some(0)` give different hashes.
///
/// # Errors
///
/// If a field has the wrong type.
///
/// ```
/// let template = serde_json::json!({"spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}});
/// let hash = kcm_api::hash::compute(&template, None)?;
/// assert_ne!(hash, kcm_api::hash::compute(&template, Some(0))?);
/// # Ok::<(), kcm_api::hash::HashError>(())
/// ```
pub fn compute(template: &Value, collision_count: Option<i32>) -> Result<String, HashError> {
    compute_with(Schema::of(Version::default()), template, collision_count)
}

/// Same as [`compute`], with the types of `schema`.
///
/// # Errors
///
/// Those of [`compute`].
pub fn compute_with(
    schema: &Schema,
    template: &Value,
    collision_count: Option<i32>,
) -> Result<String, HashError> {
    finish(schema, Decoded::template(schema, template), collision_count)
}

/// Same as [`compute`], for JSON text.
pub(crate) fn compute_json(json: &str, collision_count: Option<i32>) -> Result<String, HashError> {
    let schema = Schema::of(Version::default());
    let template = Decoded::template(schema, &mut serde_json::Deserializer::from_str(json));
    finish(schema, template, collision_count)
}

/// Same as [`compute`], for a protobuf message.
pub(crate) fn compute_message(message: &[u8], collision_count: Option<i32>) -> Result<String, HashError> {
    let schema = Schema::of(Version::default());
    finish(schema, pod_template::decode(schema, message), collision_count)
}

fn finish(
    schema: &Schema,
    template: Result<Decoded<'_>, impl fmt::Display>,
    collision_count: Option<i32>,
) -> Result<String, HashError> {
    let template =
        template.map_err(|error| HashError { path: "template".to_owned(), problem: error.to_string() })?;
    let mut hash = Fnv32::default();
    Renderer { schema, sink: &mut hash }
        .typed(schema.root(), &template)
        .map_err(|error| error.under(format_args!("template")))?;
    if let Some(count) = collision_count {
        hash.add(&count.to_le_bytes());
        hash.add(&[0; 4]);
    }
    Ok(safe_encode(&hash.0.to_string()))
}

/// Replaces each digit by a letter or digit of an alphabet without vowels, so that no words can appear.
///
/// Example: `1056` is encoded as `549b`.
///
/// Upstream counterpart: `rand.SafeEncodeString`.
fn safe_encode(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// 32-bit FNV-1a.
struct Fnv32(u32);

impl Default for Fnv32 {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32 {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    }
}

/// Receiver of the rendered text.
trait Sink {
    fn put(&mut self, text: &str);

    fn put_display(&mut self, value: impl fmt::Display) {
        self.put(&value.to_string());
    }
}

impl Sink for Fnv32 {
    fn put(&mut self, text: &str) {
        self.add(text.as_bytes());
    }
}

/// Renders values as go-spew does for `%#v`, with sorted keys and without methods, addresses and capacities. Every
/// value is preceded by its type, except list items, map entries and pointees. Nothing is quoted or escaped.
struct Renderer<'a, S> {
    schema: &'a Schema,
    sink: &'a mut S,
}

impl<S: Sink> Renderer<'_, S> {
    /// `(type)value`
    fn typed(&mut self, type_: TypeId, value: &Decoded<'_>) -> Result<(), HashError> {
        self.sink.put("(");
        self.sink.put(&self.schema.type_(type_).name);
        self.sink.put(")");
        self.bare(type_, value)
    }

    /// `value`
    fn bare(&mut self, type_: TypeId, value: &Decoded<'_>) -> Result<(), HashError> {
        match (&self.schema.type_(type_).shape, value) {
            (_, Decoded::OtherType(value)) => {
                let expected = &self.schema.type_(self.schema.pointee(type_)).name;
                return Err(HashError { path: String::new(), problem: format!("{value} is no {expected}") });
            }
            (Shape::Pointer(_) | Shape::List(_) | Shape::Map(_), Decoded::Unset) => self.sink.put("<nil>"),
            (Shape::Pointer(inner), value) => return self.bare(*inner, value),
            (Shape::List(inner), Decoded::List(items)) => return self.list(*inner, items),
            (Shape::Map(inner), Decoded::Map(entries)) => {
                self.sink.put("map[");
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.sink.put(if index > 0 { " " } else { "" });
                    self.sink.put(key);
                    self.sink.put(":");
                    self.bare(*inner, value).map_err(|error| error.under(format_args!("[{key}]")))?;
                }
                self.sink.put("]");
            }
            (Shape::Struct(shape), Decoded::Struct(object)) => return self.fields(shape, Some(object)),
            (Shape::Struct(shape), _) => return self.fields(shape, None),
            (Shape::Bool, Decoded::Bool(value)) => self.sink.put(if *value { "true" } else { "false" }),
            (Shape::Bool, _) => self.sink.put("false"),
            (Shape::Int32 | Shape::Int64, Decoded::Int(number)) => self.sink.put_display(number),
            (Shape::Int32 | Shape::Int64, _) => self.sink.put("0"),
            (Shape::Text, Decoded::Text(text)) => self.sink.put(text),
            (Shape::Quantity, Decoded::Quantity(quantity)) => self.quantity(quantity),
            (Shape::Quantity, _) => self.quantity(&Quantity::default()),
            (Shape::IntOrString, Decoded::IntOrString(value)) => self.int_or_string(value),
            (Shape::IntOrString, _) => self.int_or_string(&IntOrString::Int(0)),
            (Shape::Time, Decoded::Time(time)) => self.time(Some(*time)),
            (Shape::Time, _) => self.time(None),
            (Shape::RawJson, Decoded::RawJson(text)) => self.raw_json(Some(text)),
            (Shape::RawJson, _) => self.raw_json(None),
            // An unset string is empty. The decoder does not produce other combinations.
            (Shape::Text | Shape::List(_) | Shape::Map(_), _) => {}
        }
        Ok(())
    }

    fn list(&mut self, inner: TypeId, items: &[Decoded<'_>]) -> Result<(), HashError> {
        self.sink.put("[");
        for (index, item) in items.iter().enumerate() {
            self.sink.put(if index > 0 { " " } else { "" });
            self.bare(inner, item).map_err(|error| error.under(format_args!("[{index}]")))?;
        }
        self.sink.put("]");
        Ok(())
    }

    /// Renders a struct. Unknown fields are not part of the Go value.
    fn fields(&mut self, shape: &Struct, object: Option<&DecodedStruct<'_>>) -> Result<(), HashError> {
        let mut separator = "{";
        for (index, field) in shape.fields.iter().enumerate() {
            self.sink.put(separator);
            separator = " ";
            self.sink.put(&field.name);
            self.sink.put(":");
            let value = object.and_then(|object| object.fields.get(index)).unwrap_or(&Decoded::Unset);
            self.typed(field.type_, value).map_err(|error| match &field.json {
                Some(json) => error.under(format_args!(".{json}")),
                None => error,
            })?;
        }
        self.sink.put(if shape.fields.is_empty() { "{}" } else { "}" });
        Ok(())
    }

    fn quantity(&mut self, quantity: &Quantity) {
        let (value, scale) = match &quantity.amount {
            Amount::Int { value, scale } => (*value, *scale),
            Amount::Dec { .. } => (0, 0),
        };
        self.sink.put("{i:(resource.int64Amount){value:(int64)");
        self.sink.put_display(value);
        self.sink.put(" scale:(resource.Scale)");
        self.sink.put_display(scale);
        self.sink.put("} d:(resource.infDecAmount){Dec:(*inf.Dec)");
        if let Amount::Dec { negative, abs, scale } = &quantity.amount {
            self.sink.put("{unscaled:(big.Int){neg:(bool)");
            self.sink.put(if *negative { "true" } else { "false" });
            self.sink.put(" abs:(big.nat)");
            // Go's zero has nil words rather than an empty list.
            let mut separator = if abs.words().is_empty() { "<nil>" } else { "[" };
            for word in abs.words() {
                self.sink.put(separator);
                self.sink.put_display(word);
                separator = " ";
            }
            self.sink.put(if abs.words().is_empty() { separator } else { "]" });
            self.sink.put("} scale:(inf.Scale)");
            self.sink.put_display(scale);
            self.sink.put("}");
        } else {
            self.sink.put("<nil>");
        }
        self.sink.put("} s:(string)");
        self.sink.put(&quantity.canonical);
        self.sink.put(" Format:(resource.Format)");
        if let Some(format) = quantity.format {
            self.sink.put_display(format);
        }
        self.sink.put("}");
    }

    fn int_or_string(&mut self, value: &IntOrString) {
        let (type_, number, text) = match value {
            IntOrString::Int(number) => ("0", *number, ""),
            IntOrString::String(text) => ("1", 0, text.as_str()),
        };
        self.sink.put("{Type:(intstr.Type)");
        self.sink.put(type_);
        self.sink.put(" IntVal:(int32)");
        self.sink.put_display(number);
        self.sink.put(" StrVal:(string)");
        self.sink.put(text);
        self.sink.put("}");
    }

    /// A time that is set is in the manager's time zone, which shows. A manager in a container has none, and
    /// Go's name for that is UTC.
    fn time(&mut self, time: Option<Timestamp>) {
        /// From Go's first second, in year 1, to 1970.
        const SECONDS_TO_1970: i64 = -crate::Time::GO_ZERO.unix();
        let (seconds, nanoseconds) = time.map_or((0, 0), |time| {
            let nanoseconds = time.as_nanosecond() - i128::from(time.as_second()) * 1_000_000_000;
            let borrow = i64::from(nanoseconds < 0);
            (time.as_second() - borrow + SECONDS_TO_1970, nanoseconds + i128::from(borrow) * 1_000_000_000)
        });
        self.sink.put("{Time:(time.Time){wall:(uint64)");
        self.sink.put_display(nanoseconds);
        self.sink.put(" ext:(int64)");
        self.sink.put_display(seconds);
        self.sink.put(" loc:(*time.Location)");
        self.sink.put(match time {
            None => "<nil>",
            Some(_) => concat!(
                "{name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string) ",
                "cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}"
            ),
        });
        self.sink.put("}}");
    }

    fn raw_json(&mut self, text: Option<&str>) {
        self.sink.put("{Raw:([]uint8)");
        match text {
            None => self.sink.put("<nil>"),
            Some(text) => {
                for (index, byte) in text.bytes().enumerate() {
                    self.sink.put(if index > 0 { " " } else { "[" });
                    self.sink.put_display(byte);
                }
                self.sink.put("]");
            }
        }
        self.sink.put("}");
    }
}

impl HashError {
    /// The same error seen from further out.
    fn under(self, segment: fmt::Arguments<'_>) -> Self {
        Self { path: format!("{segment}{}", self.path), ..self }
    }
}

#[cfg(test)]
mod tests;
