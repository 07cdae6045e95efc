//! Schema-driven serde seed that decodes in one pass, without an intermediate tree.

use std::{collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{add_always_written, scalar, zero_value};
use crate::schema::{Field, Presence, Schema, Struct, StructId, Type};

/// Maximum number of reported errors, as upstream.
const MAX_STRICT_ERRORS: usize = 100;

/// Position in the object, and errors found so far.
pub(super) struct Context<'s> {
    schema: &'s Schema,
    path: Vec<Step<'s>>,
    strict_errors: Vec<String>,
    seen: BTreeSet<String>,
    /// Type error that ended decoding, in Go's format. serde's errors would append a position.
    type_error: Option<String>,
    /// `false` if Go cannot decode the kind and version: the value is no object, or one of them is no string.
    pub(super) has_type_meta: bool,
}

/// Element of the path to a value.
#[derive(Clone, Copy)]
enum Step<'s> {
    Field(&'s Struct, &'s Field),
    Index(usize),
}

impl<'s> Context<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            path: Vec::new(),
            strict_errors: Vec::new(),
            seen: BTreeSet::new(),
            type_error: None,
            has_type_meta: true,
        }
    }

    /// Returns the strict errors, and the type error that ended decoding.
    pub(super) fn into_diagnostics(self) -> (Vec<String>, Option<String>) {
        (self.strict_errors, self.type_error)
    }

    /// Reports the field `name` of the current value as unknown or duplicate.
    fn report(&mut self, what: &str, name: &str) {
        if self.strict_errors.len() == MAX_STRICT_ERRORS {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(_, field) if path.is_empty() => path.push_str(field.name),
                Step::Field(_, field) => path.extend([".", field.name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        let dot = if path.is_empty() { "" } else { "." };
        let strict_error = format!("{what} field \"{path}{dot}{name}\"");
        if self.seen.insert(strict_error.clone()) {
            self.strict_errors.push(strict_error);
        }
    }

    /// Ends decoding with this error message.
    fn fail<E: Error>(&mut self, detail: String) -> E {
        self.type_error = Some(detail);
        E::custom("not of its field's type")
    }

    /// Ends decoding at a value (`found`, in Go's terms) that does not have type `ty`.
    fn mismatch<E: Error>(&mut self, found: &str, ty: &Type) -> E {
        let innermost = self.path.iter().rev().find_map(|step| match step {
            Step::Field(within, field) => Some((*within, *field)),
            Step::Index(_) => None,
        });
        let detail = match (innermost, ty) {
            // These types have custom unmarshalers in Go, whose errors contain no path.
            (_, Type::IntOrString) => {
                format!("json: cannot unmarshal {found} into Go value of type int32")
            }
            (_, Type::Time | Type::MicroTime) => {
                format!("json: cannot unmarshal {found} into Go value of type string")
            }
            (Some((within, field)), _) => {
                let names: Vec<&str> = self
                    .path
                    .iter()
                    .filter_map(|step| match step {
                        Step::Field(_, field) => Some(field.name),
                        Step::Index(_) => None,
                    })
                    .collect();
                // Go decodes these two first, into a struct without a name.
                let is_type = matches!(names.as_slice(), ["apiVersion" | "kind"]);
                self.has_type_meta &= !is_type;
                format!(
                    "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                    if is_type { "" } else { &within.name },
                    names.join("."),
                    self.schema.go_type(ty, within, field)
                )
            }
            (None, Type::Struct(_)) => {
                self.has_type_meta = false;
                not_an_object(found)
            }
            (None, _) => format!("json: cannot unmarshal {found} into Go value"),
        };
        self.fail(detail)
    }
}

/// Error message about a body that is no object.
pub(super) fn not_an_object(found: &str) -> String {
    format!(
        "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// Decodes an object of a kind.
pub(super) struct Root<'c, 's> {
    pub(super) id: StructId,
    pub(super) context: &'c mut Context<'s>,
}

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let ty = Type::Struct(self.id);
        let schema = self.context.schema;
        let value = Typed { ty: &ty, context: self.context }.deserialize(deserializer)?;
        Ok(value.or_else(|| zero_value(schema, &ty)).unwrap_or_default())
    }
}

/// Decodes a value of type `ty`. `None` for `null`.
struct Typed<'c, 's> {
    ty: &'c Type,
    context: &'c mut Context<'s>,
}

impl<'de> DeserializeSeed<'de> for Typed<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Typed<'_, '_> {
    /// Returns the value if it has the right type (`fits`).
    fn accept<E: Error>(
        self,
        value: Value,
        fits: bool,
        found: impl FnOnce() -> String,
    ) -> Result<Option<Value>, E> {
        match self.ty {
            Type::Any => Ok(Some(value)),
            _ if fits => Ok(Some(value)),
            ty => Err(self.context.mismatch(&found(), ty)),
        }
    }

    /// Returns the normalized string.
    fn read<E: Error>(
        self,
        text: &str,
        read: fn(&str) -> Result<String, String>,
    ) -> Result<Option<Value>, E> {
        match read(text) {
            Ok(text) => Ok(Some(Value::String(text))),
            Err(detail) => Err(self.context.fail(detail)),
        }
    }

    fn integer<E: Error>(self, number: &Number) -> Result<Option<Value>, E> {
        let fits = match self.ty {
            Type::Int32 | Type::IntOrString => {
                number.as_i64().is_some_and(|value| i32::try_from(value).is_ok())
            }
            Type::Int64 => number.as_i64().is_some(),
            // Quantities may be JSON numbers.
            Type::Quantity => return self.read(&number.to_string(), scalar::quantity),
            _ => false,
        };
        let plain = !matches!(self.ty, Type::Int32 | Type::Int64 | Type::IntOrString);
        self.accept(Value::Number(number.clone()), fits, || {
            if plain { "number".to_owned() } else { format!("number {number}") }
        })
    }
}

impl<'de> Visitor<'de> for Typed<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<Value>, E> {
        let fits = *self.ty == Type::Bool;
        self.accept(Value::Bool(value), fits, || "bool".to_owned())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<Value>, E> {
        self.integer(&Number::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<Value>, E> {
        self.integer(&Number::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<Value>, E> {
        match Number::from_f64(value) {
            Some(number) => self.integer(&number),
            None => Err(self.context.fail("json: invalid number".to_owned())),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        match self.ty {
            Type::Text | Type::IntOrString | Type::Any => Ok(Some(Value::from(text))),
            Type::Quantity => self.read(text, scalar::quantity),
            Type::Time => self.read(text, scalar::time),
            Type::MicroTime => self.read(text, scalar::micro_time),
            Type::Bytes => self.read(text, scalar::bytes),
            ty => Err(self.context.mismatch("string", ty)),
        }
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Option<Value>, E> {
        match self.ty {
            Type::Text | Type::IntOrString | Type::Any => Ok(Some(Value::String(text))),
            _ => self.visit_str(&text),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Option<Value>, A::Error> {
        let element = match self.ty {
            Type::List(element) => &**element,
            Type::Any => &Type::Any,
            ty => return Err(self.context.mismatch("array", ty)),
        };
        let mut list = Vec::with_capacity(elements.size_hint().unwrap_or(0).min(256));
        loop {
            self.context.path.push(Step::Index(list.len()));
            let next = elements.next_element_seed(Typed { ty: element, context: self.context })?;
            self.context.path.pop();
            match next {
                None => return Ok(Some(Value::Array(list))),
                // In Go, a null element is a zero value.
                Some(value) => {
                    list.push(value.or_else(|| zero_value(self.context.schema, element)).unwrap_or_default());
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Option<Value>, A::Error> {
        match self.ty {
            Type::Struct(id) => read_struct(*id, self.context, entries),
            Type::Map(element) => read_map(element, self.context, entries),
            Type::Any => read_map(&Type::Any, self.context, entries),
            ty => Err(self.context.mismatch("object", ty)),
        }
    }
}

fn read_map<'de, A: MapAccess<'de>>(
    element: &Type,
    context: &mut Context<'_>,
    mut entries: A,
) -> Result<Option<Value>, A::Error> {
    let mut map = Map::new();
    while let Some(key) = entries.next_key::<String>()? {
        if *element != Type::Any && map.contains_key(&key) {
            context.report("duplicate", &key);
        }
        let value = entries.next_value_seed(Typed { ty: element, context })?;
        map.insert(key, value.or_else(|| zero_value(context.schema, element)).unwrap_or_default());
    }
    Ok(Some(Value::Object(map)))
}

fn read_struct<'de, A: MapAccess<'de>>(
    id: StructId,
    context: &mut Context<'_>,
    mut entries: A,
) -> Result<Option<Value>, A::Error> {
    let of = context.schema.get(id);
    let mut fields = Map::new();
    // Bit set of the fields so far. No type has more than 128 fields.
    let mut met = 0_u128;
    while let Some(key) = entries.next_key_seed(FieldName(of))? {
        let position = match key {
            Key::Known(position) => position,
            Key::Unknown(name) => {
                context.report("unknown", &name);
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
        };
        let Some(field) = of.fields.get(position) else { continue };
        let bit = 1_u128.checked_shl(position as u32).unwrap_or(0);
        if met & bit != 0 {
            context.report("duplicate", field.name);
        }
        met |= bit;
        context.path.push(Step::Field(of, field));
        let value = entries.next_value_seed(Typed { ty: &field.ty, context })?;
        context.path.pop();
        match value {
            // An empty list resets managed fields.
            Some(value)
                if field.presence != Presence::NotEmpty
                    || !is_empty(&value)
                    || field.name == "managedFields" =>
            {
                fields.insert(field.name.to_owned(), value);
            }
            // As in Go, a null keeps an earlier value and an empty value replaces it.
            Some(_) => {
                fields.remove(field.name);
            }
            None => {}
        }
    }
    add_always_written(context.schema, id, &mut fields);
    Ok(Some(Value::Object(fields)))
}

/// `true` if `omitempty` omits the value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Decodes the key of a struct. Known keys are not allocated.
struct FieldName<'s>(&'s Struct);

enum Key {
    Known(usize),
    Unknown(String),
}

impl<'de> DeserializeSeed<'de> for FieldName<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
        Ok(self.0.position(name).map_or_else(|| Key::Unknown(name.to_owned()), Key::Known))
    }
}
