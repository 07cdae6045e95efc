//! Order of members in JSON texts: that of the fields of Go's structs, and of names elsewhere.

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::{Map, Value};

use super::{SCHEMA, Struct, Type};
use crate::{json::str_at, protobuf};

/// Order of the members of a value.
#[derive(Clone, Copy)]
pub(crate) enum Order<'a> {
    /// By name, as in Go's maps.
    Names,
    /// As the kind that the value names.
    Kind,
    /// As in a struct.
    Struct(&'a Struct),
    /// By name or position. The elements have this type.
    Elements(&'a Type),
    /// As in `JSONSchemaProps`.
    JsonSchema,
    /// By name. The members are ordered as in `JSONSchemaProps`.
    JsonSchemas,
}

impl<'a> Order<'a> {
    /// Order of an object of this kind. Members of kinds that are not built in are sorted by name.
    pub(crate) fn of_kind(api_version: &str, kind: &str) -> Order<'static> {
        SCHEMA
            .kind(api_version, kind)
            .or_else(|| SCHEMA.document(kind))
            .map_or(Order::Names, |id| Order::Struct(SCHEMA.get(id)))
    }

    fn of_type(ty: &'a Type) -> Self {
        match ty {
            Type::Struct(id) => Self::Struct(SCHEMA.get(*id)),
            Type::List(element) | Type::Map(element) => Self::Elements(element),
            Type::Any => Self::Kind,
            _ => Self::Names,
        }
    }

    /// Order of the elements of a list.
    pub(crate) fn of_elements(self) -> Self {
        match self {
            Self::Elements(ty) => Self::of_type(ty),
            order => order,
        }
    }

    /// Returns the order of the member `name`, with its position among the others.
    pub(crate) fn member(self, name: &str) -> (usize, Self) {
        match self {
            Self::Names | Self::Kind => (0, Self::Names),
            Self::Elements(ty) => (0, Self::of_type(ty)),
            Self::JsonSchemas => (0, Self::JsonSchema),
            Self::Struct(of) => match of.field(name) {
                Some(field) if name == "openAPIV3Schema" => (field.rank, Self::JsonSchema),
                Some(field) => (field.rank, Self::of_type(&field.ty)),
                None => (usize::MAX, Self::Names),
            },
            Self::JsonSchema => {
                let order = match name {
                    "properties" | "patternProperties" | "definitions" | "dependencies" => Self::JsonSchemas,
                    "default" | "example" | "enum" => Self::Names,
                    _ => Self::JsonSchema,
                };
                (protobuf::json_schema_position(name), order)
            }
        }
    }

    /// Returns the members of an object in this order, and the orders of their members.
    pub(crate) fn members(self, object: &Map<String, Value>) -> Vec<(&str, &Value, Self)> {
        let members = object.iter().map(|(name, value)| {
            let (position, order) = self.member(name);
            (position, (name.as_str(), value, order))
        });
        let mut members: Vec<_> = members.collect();
        members.sort_by_key(|(position, _)| *position);
        members.into_iter().map(|(_, member)| member).collect()
    }
}

/// A value that is serialized in an [`Order`].
#[derive(Clone, Copy)]
pub(crate) struct Ordered<'a>(pub(crate) &'a Value, pub(crate) Order<'a>);

impl<'a> Ordered<'a> {
    /// A value in the order of its kind.
    pub(crate) fn new(value: &'a Value) -> Self {
        Self(value, Order::Kind)
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self(value @ Value::Object(members), Order::Kind) => {
                let order = match members.get("kind") {
                    Some(_) => Order::of_kind(str_at(value, &["apiVersion"]), str_at(value, &["kind"])),
                    None => Order::Names,
                };
                match order {
                    Order::Names => value.serialize(serializer),
                    order => Ordered(value, order).serialize(serializer),
                }
            }
            Self(value, Order::Names | Order::Kind) => value.serialize(serializer),
            Self(Value::Object(object), order) => {
                let mut map = serializer.serialize_map(Some(object.len()))?;
                for (name, value, order) in order.members(object) {
                    map.serialize_entry(name, &Ordered(value, order))?;
                }
                map.end()
            }
            Self(Value::Array(items), order) => {
                let order = order.of_elements();
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Ordered(item, order))?;
                }
                list.end()
            }
            Self(value, _) => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(value: &Value) -> String {
        serde_json::to_string(&Ordered::new(value)).unwrap()
    }

    #[test]
    fn members_have_the_order_of_go() {
        let pod = json!({
            "spec": {"nodeName": "n", "containers": [{"image": "i", "name": "c", "other": 1, "env": []}],
                "initContainers": []},
            "metadata": {"uid": "u", "labels": {"b": "1", "a": "2"}, "name": "p"},
            "apiVersion": "v1",
            "kind": "Pod",
        });
        assert_eq!(
            text(&pod),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u","labels":{"a":"2","b":"1"}},"spec":{"initContainers":[],"containers":[{"name":"c","image":"i","env":[],"other":1}],"nodeName":"n"}}"#
        );
        let custom = json!({"kind": "Website", "apiVersion": "example.com/v1", "data": {"b": 1, "a": 2}});
        assert_eq!(text(&custom), custom.to_string());
    }

    #[test]
    fn json_schemas_have_the_order_of_go() {
        let schema = json!({"properties": {"type": {"enum": ["b"], "type": "string", "default": {"type": 1, "format": 2}}},
            "type": "object", "description": "d"});
        let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
            "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}, "name": "v1"}]}});
        assert_eq!(
            text(&definition),
            r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"description":"d","type":"object","properties":{"type":{"type":"string","default":{"format":2,"type":1},"enum":["b"]}}}}}]}}"#
        );
    }
}
