//! Derives the structure of a k8s-openapi type from the calls of its `Deserialize`.
//!
//! A [`Tracer`] is a serde deserializer without input. It offers each field of a struct once, one element of a list,
//! `Some` for an `Option`, and a valid value for everything else. The requested types form the schema.

use std::{any::type_name, collections::BTreeMap};

use k8s_openapi::ByteString;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor,
        value::{Error, StrDeserializer, UnitDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{Field, Presence, Schema, Struct, StructId, Type, order};

/// Adds `T` and the types of its fields. Returns `None` if `T` cannot be traced, which tests exclude.
pub(super) fn trace<T: for<'de> Deserialize<'de>>(
    schema: &mut Schema,
    api_version: &'static str,
    kind: &'static str,
) -> Option<StructId> {
    let mut found = None;
    T::deserialize(Tracer { schema, root: Some((api_version, kind)), found: &mut found }).ok()?;
    match found {
        Some(Type::Struct(id)) => Some(id),
        _ => None,
    }
}

struct Tracer<'a> {
    schema: &'a mut Schema,
    /// Required `apiVersion` and `kind`. The types of kinds reject other values.
    root: Option<(&'static str, &'static str)>,
    found: &'a mut Option<Type>,
}

impl Tracer<'_> {
    fn found(&mut self, ty: Type) {
        *self.found = Some(ty);
    }
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        // Only this type deserializes with `deserialize_any`.
        self.found(Type::IntOrString);
        visitor.visit_i32(0)
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.found(Type::Bool);
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.found(Type::Int32);
        visitor.visit_i32(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.found(Type::Int64);
        visitor.visit_i64(0)
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.found(Type::Text);
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { schema, root, found } = self;
        let value = visitor.visit_some(Tracer { schema, root, found })?;
        // It is deserialized as an optional string. Only its name distinguishes it from a string.
        if type_name::<V::Value>() == type_name::<ByteString>() {
            *found = Some(Type::Bytes);
        }
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        const EPOCH: &str = "1970-01-01T00:00:00Z";
        match name {
            "Time" => {
                self.found(Type::Time);
                visitor.visit_newtype_struct(StrDeserializer::new(EPOCH))
            }
            "MicroTime" => {
                self.found(Type::MicroTime);
                visitor.visit_newtype_struct(StrDeserializer::new(EPOCH))
            }
            "Quantity" => {
                self.found(Type::Quantity);
                visitor.visit_newtype_struct(StrDeserializer::new("0"))
            }
            "RawExtension" | "FieldsV1" | "CustomResourceSubresourceStatus" => {
                self.found(Type::Any);
                visitor.visit_newtype_struct(UnitDeserializer::new())
            }
            other => Err(Error::custom(format!("cannot trace {other}"))),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut element = None;
        let value = visitor.visit_seq(Elements { schema: self.schema, element: &mut element, left: 1 })?;
        *self.found = element.map(|ty| Type::List(Box::new(ty)));
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut element = None;
        let value = visitor.visit_map(Elements { schema: self.schema, element: &mut element, left: 1 })?;
        *self.found = element.map(|ty| Type::Map(Box::new(ty)));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == "JSONSchemaProps" {
            // It contains itself. `crate::custom` reads it.
            self.found(Type::Any);
            return visitor.visit_map(Elements { schema: self.schema, element: &mut None, left: 0 });
        }
        let package = package_of(type_name::<V::Value>());
        let structs = &mut self.schema.structs;
        let known = structs.iter().position(|known| known.name == name && known.package == package);
        let index = known.unwrap_or(structs.len());
        if known.is_none() {
            let (name, fields, wire) = (name.to_owned(), Vec::new(), BTreeMap::new());
            structs.push(Struct { package, name, fields, wire });
        }
        self.found(Type::Struct(u16::try_from(index).map(StructId).map_err(Error::custom)?));
        // Known structs are offered their fields again: some have required fields. No struct contains itself.
        let mut fields = Vec::with_capacity(names.len());
        let value = visitor.visit_map(Fields {
            schema: self.schema,
            root: self.root,
            names: names.iter(),
            fields: &mut fields,
        })?;
        fields.sort_by_key(|field| order(field.name));
        if let Some(traced) = self.schema.structs.get_mut(index) {
            traced.fields = fields;
        }
        Ok(value)
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

/// Returns `core/v1` for `k8s_openapi::v1_36::api::core::v1::pod::Pod`.
fn package_of(type_name: &str) -> String {
    let mut segments = type_name.split("::").skip_while(|segment| !matches!(*segment, "api" | "apis"));
    segments.next();
    let package: Vec<&str> = segments.take(2).collect();
    package.join("/")
}

/// Offers one element of a list, or one entry of a map.
struct Elements<'a> {
    schema: &'a mut Schema,
    element: &'a mut Option<Type>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(Tracer { schema: self.schema, root: None, found: self.element }).map(Some)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(StrDeserializer::new("key")).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Tracer { schema: self.schema, root: None, found: self.element })
    }
}

/// Offers the fields of a struct in order.
struct Fields<'a> {
    schema: &'a mut Schema,
    root: Option<(&'static str, &'static str)>,
    names: std::slice::Iter<'a, &'static str>,
    fields: &'a mut Vec<Field>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        self.fields.push(Field { name, ty: Type::Any, presence: Presence::default(), go_name: None });
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some(field) = self.fields.last_mut() else {
            return Err(Error::custom("value requested before its key"));
        };
        if let Some((api_version, kind)) = self.root
            && let Some(text) = match field.name {
                "apiVersion" => Some(api_version),
                "kind" => Some(kind),
                _ => None,
            }
        {
            field.ty = Type::Text;
            return seed.deserialize(Constant(text));
        }
        let mut found = None;
        let value = seed.deserialize(Tracer { schema: self.schema, root: None, found: &mut found })?;
        field.ty = found.ok_or_else(|| Error::custom(format!("{} has no type", field.name)))?;
        Ok(value)
    }
}

/// A string that may also be deserialized as an option.
struct Constant(&'static str);

impl<'de> Deserializer<'de> for Constant {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
