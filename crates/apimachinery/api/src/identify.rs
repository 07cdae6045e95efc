//! Identification of objects that cannot be decoded.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Returns the name (`namespace/name` if it has a namespace) and the resource version of an object of any kind.
///
/// For objects that cannot be decoded. It does not fail: it returns what precedes the first error, and ignores values
/// that are not strings.
pub fn object_name(json: &str) -> (String, Option<String>) {
    let mut found = Found::default();
    // An error ends the search. What was found before it is used.
    let _ = serde_json::Deserializer::from_str(json).deserialize_any(Object(&mut found));
    let name = match (found.namespace, found.name) {
        (Some(namespace), Some(name)) if !namespace.is_empty() => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or_default(),
    };
    (name, found.resource_version)
}

#[derive(Default)]
struct Found {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

struct Object<'a>(&'a mut Found);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "metadata" {
                map.next_value_seed(Metadata(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Metadata<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("metadata")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let place = match key.as_str() {
                "namespace" => &mut self.0.namespace,
                "name" => &mut self.0.name,
                "resourceVersion" => &mut self.0.resource_version,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Value::String(text) = map.next_value()? {
                *place = Some(text);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(json: &str) -> (String, Option<String>) {
        object_name(json)
    }

    #[test]
    fn names_any_kind() {
        let json = r#"{"spec": [1], "metadata": {"labels": {}, "name": "web", "namespace": "shop", "resourceVersion": "7"}}"#;
        assert_eq!(named(json), ("shop/web".to_owned(), Some("7".to_owned())));
        assert_eq!(named(r#"{"metadata": {"name": "node-1"}}"#), ("node-1".to_owned(), None));
    }

    #[test]
    fn names_malformed_objects() {
        let cut =
            r#"{"metadata": {"resourceVersion": "7", "namespace": "shop", "name": "web", "labels": {"a"#;
        assert_eq!(named(cut), ("shop/web".to_owned(), Some("7".to_owned())));
        let wrong = r#"{"metadata": {"name": 5, "namespace": null, "resourceVersion": "7"}}"#;
        assert_eq!(named(wrong), (String::new(), Some("7".to_owned())));
        for hopeless in ["", "null", "[]", "{", r#"{"metadata": "web"}"#, r#"{"metadata": null}"#, "\u{0}"] {
            assert_eq!(named(hopeless), (String::new(), None), "{hopeless}");
        }
    }
}
