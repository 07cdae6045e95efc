//! Pod templates as decoded by Go, the input of hashing and comparing.

use std::{borrow::Cow, fmt};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::{Value, value::RawValue};

use crate::{
    IntOrString,
    json::Text,
    quantity::Quantity,
    schema::{Schema, Shape, Struct, TypeId},
};

/// Value of a Go variable whose type is defined by the [`Schema`].
///
/// A set pointer is represented by its value. [`Unset`](Self::Unset) is different from a zero value for pointers
/// only.
#[derive(Debug, Default)]
pub(crate) enum Decoded<'a> {
    /// Nil, or the zero value of a type without nil.
    #[default]
    Unset,
    Bool(bool),
    Int(i64),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// Sorted by key, without duplicates.
    Map(Vec<(Cow<'a, str>, Self)>),
    Struct(Box<DecodedStruct<'a>>),
    Quantity(Box<Quantity>),
    IntOrString(IntOrString),
    Time(Timestamp),
    RawJson(Box<str>),
    /// JSON of the wrong type, which Go would reject.
    OtherType(Box<Value>),
}

/// Fields of a struct in the order of the schema, and unknown fields.
#[derive(Debug, Default)]
pub(crate) struct DecodedStruct<'a> {
    pub(crate) fields: Vec<Decoded<'a>>,
    /// Sorted by name, without duplicates.
    pub(crate) unknown: Vec<(Cow<'a, str>, Value)>,
}

impl<'a> Decoded<'a> {
    /// Decodes a pod template.
    ///
    /// # Errors
    ///
    /// If the JSON is malformed. Values of the wrong type are not errors, see [`OtherType`](Self::OtherType).
    pub(crate) fn template<D: Deserializer<'a>>(schema: &Schema, deserializer: D) -> Result<Self, D::Error> {
        let mut template = Self::Unset;
        Slot { schema, type_: schema.root(), value: &mut template }.deserialize(deserializer)?;
        Ok(template)
    }

    /// Returns the value at a path of JSON names. `None` if a part of the path is unset.
    pub(crate) fn at_mut(&mut self, schema: &Schema, path: &[&str]) -> Option<&mut Self> {
        let (mut value, mut type_) = (self, schema.root());
        for name in path {
            let Shape::Struct(shape) = &schema.type_(schema.pointee(type_)).shape else { return None };
            let Self::Struct(object) = value else { return None };
            (value, type_) = object.field_mut(schema, shape, shape.path(name)?)?;
        }
        Some(value)
    }

    /// Returns the struct, or an empty one if it is unset.
    pub(crate) fn take_struct(&mut self, shape: &Struct) -> Box<DecodedStruct<'a>> {
        match std::mem::take(self) {
            Self::Struct(object) => object,
            _ => {
                let mut fields = Vec::new();
                fields.resize_with(shape.fields.len(), Self::default);
                Box::new(DecodedStruct { fields, unknown: Vec::new() })
            }
        }
    }
}

impl<'a> DecodedStruct<'a> {
    /// Returns the field at `path` and its type. Creates embedded structs on the way.
    fn field_mut(
        &mut self,
        schema: &Schema,
        shape: &Struct,
        path: &[u8],
    ) -> Option<(&mut Decoded<'a>, TypeId)> {
        let (first, rest) = path.split_first()?;
        let index = usize::from(*first);
        let (type_, value) = (shape.fields.get(index)?.type_, self.fields.get_mut(index)?);
        match &schema.type_(type_).shape {
            Shape::Struct(embedded) if !rest.is_empty() => {
                *value = Decoded::Struct(value.take_struct(embedded));
                let Decoded::Struct(object) = value else { return None };
                object.field_mut(schema, embedded, rest)
            }
            _ => Some((value, type_)),
        }
    }
}

/// Variable that a JSON value is decoded into.
///
/// As in Go, decoding into a struct or map that is already set, by an earlier duplicate of its key, adds to it.
struct Slot<'s, 'a> {
    schema: &'s Schema,
    type_: TypeId,
    value: &'s mut Decoded<'a>,
}

impl<'s, 'a> Slot<'s, 'a> {
    fn shape(&self) -> &'s Shape {
        &self.schema.type_(self.schema.pointee(self.type_)).shape
    }

    fn other_type(self, value: impl Into<Value>) {
        *self.value = Decoded::OtherType(Box::new(value.into()));
    }

    fn int(self, number: i64) {
        *self.value = match (self.shape(), i32::try_from(number)) {
            (Shape::Int64, _) | (Shape::Int32, Ok(_)) => Decoded::Int(number),
            (Shape::IntOrString, Ok(number)) => Decoded::IntOrString(IntOrString::Int(number)),
            _ => return self.other_type(number),
        };
    }

    fn text(self, text: Cow<'a, str>) {
        *self.value = match self.shape() {
            Shape::Text => Decoded::Text(text),
            Shape::IntOrString => Decoded::IntOrString(IntOrString::String(text.into_owned())),
            Shape::Time => match text.parse() {
                Ok(time) => Decoded::Time(time),
                Err(_) => return self.other_type(text.into_owned()),
            },
            _ => return self.other_type(text.into_owned()),
        };
    }

    /// Decodes quantities and raw JSON from text, as Go does: `1e3` and `1000` are different.
    fn raw(self, raw: &RawValue) {
        let text = raw.get();
        *self.value = match self.shape() {
            _ if text == "null" => Decoded::Unset,
            Shape::RawJson => Decoded::RawJson(text.into()),
            _ => {
                let unquoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                match unquoted.unwrap_or(text).trim().parse() {
                    Ok(quantity) => Decoded::Quantity(Box::new(quantity)),
                    Err(_) => {
                        return self.other_type(serde_json::from_str::<Value>(text).unwrap_or_default());
                    }
                }
            }
        };
    }
}

impl<'a> DeserializeSeed<'a> for Slot<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.shape() {
            Shape::Quantity | Shape::RawJson => {
                self.raw(&Box::<RawValue>::deserialize(deserializer)?);
                Ok(())
            }
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'a> Visitor<'a> for Slot<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        // As in Go, null does not change a variable whose type has no nil.
        let has_nil = matches!(
            self.schema.type_(self.type_).shape,
            Shape::Pointer(_) | Shape::List(_) | Shape::Map(_) | Shape::Time
        );
        if has_nil {
            *self.value = Decoded::Unset;
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.shape() {
            Shape::Bool => *self.value = Decoded::Bool(value),
            _ => self.other_type(value),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.int(number);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.int(number),
            Err(_) => self.other_type(number),
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.other_type(number);
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.text(Cow::Owned(text.to_owned()));
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.text(Cow::Borrowed(text));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let Shape::List(type_) = *self.shape() else {
            let value = Value::deserialize(SeqAccessDeserializer::new(items))?;
            self.other_type(value);
            return Ok(());
        };
        let mut list = Vec::new();
        loop {
            let mut item = Decoded::Unset;
            let slot = Slot { schema: self.schema, type_, value: &mut item };
            if items.next_element_seed(slot)?.is_none() {
                break;
            }
            list.push(item);
        }
        *self.value = Decoded::List(list);
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, map: A) -> Result<(), A::Error> {
        match self.shape() {
            Shape::Struct(shape) => self.fields(shape, map),
            Shape::Map(type_) => self.entries(*type_, map),
            _ => {
                let value = Value::deserialize(MapAccessDeserializer::new(map))?;
                self.other_type(value);
                Ok(())
            }
        }
    }
}

impl<'a> Slot<'_, 'a> {
    fn fields<A: MapAccess<'a>>(self, shape: &Struct, mut map: A) -> Result<(), A::Error> {
        let mut object = self.value.take_struct(shape);
        while let Some(Text(key)) = map.next_key()? {
            let path = shape.path(&key);
            if let Some((value, type_)) = path.and_then(|path| object.field_mut(self.schema, shape, path)) {
                map.next_value_seed(Slot { schema: self.schema, type_, value })?;
                continue;
            }
            object.unknown.push((key, map.next_value()?));
        }
        last_of_each_key(&mut object.unknown);
        // Null unsets unknown fields, too.
        object.unknown.retain(|(_, value)| !value.is_null());
        *self.value = Decoded::Struct(object);
        Ok(())
    }

    fn entries<A: MapAccess<'a>>(self, type_: TypeId, mut map: A) -> Result<(), A::Error> {
        let mut entries = match std::mem::take(self.value) {
            Decoded::Map(entries) => entries,
            _ => Vec::new(),
        };
        while let Some(Text(key)) = map.next_key()? {
            let mut value = Decoded::Unset;
            map.next_value_seed(Slot { schema: self.schema, type_, value: &mut value })?;
            entries.push((key, value));
        }
        last_of_each_key(&mut entries);
        *self.value = Decoded::Map(entries);
        Ok(())
    }
}

/// Brings entries in order of their keys; of those with one key, the last stays.
fn last_of_each_key<T>(entries: &mut Vec<(Cow<'_, str>, T)>) {
    // As written by Go.
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|a, b| a.0 == b.0);
    }
}
