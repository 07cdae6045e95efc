//! Parses JSON of no known type and reports duplicate fields, which `serde_json` drops.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Decodes a value below `path`.
pub(super) struct Untyped<'a> {
    pub(super) path: &'a mut String,
    /// Errors in upstream's format, without repetitions.
    pub(super) errors: &'a mut Vec<String>,
}

impl Untyped<'_> {
    /// Decodes the next value below `step`.
    fn below<T>(&mut self, step: &str, decode: impl FnOnce(Untyped<'_>) -> T) -> T {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        let decoded = decode(Untyped { path: self.path, errors: self.errors });
        self.path.truncate(length);
        decoded
    }
}

impl<'de> DeserializeSeed<'de> for Untyped<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Untyped<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) =
            self.below(&format!("[{}]", list.len()), |seed| elements.next_element_seed(seed))?
        {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = self.below(&key, |seed| {
                let error = format!("duplicate field {:?}", seed.path);
                if map.contains_key(&key) && !seed.errors.contains(&error) {
                    seed.errors.push(error);
                }
                entries.next_value_seed(seed)
            })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
