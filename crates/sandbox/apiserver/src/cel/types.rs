//! Types of values in rules.
//!
//! Upstream counterpart: `apiserver/pkg/cel/common/schemas.go`.

use std::fmt;

use crate::structural_schema::{Additional, Schema, SchemaType};

/// Type of an expression.
#[derive(Debug, Clone)]
pub(super) enum Type<'a> {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Null,
    Duration,
    Timestamp,
    /// Type of types.
    OfTypes,
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
    /// Object with properties; `true` for a resource, which has metadata.
    Object(&'a Schema, bool),
    /// Metadata of a resource.
    Metadata,
    Optional(Box<Self>),
    /// Type of a library.
    Library(&'static str),
    /// Value without a type in the schema, which cannot be read.
    Unknown,
}

impl<'a> Type<'a> {
    /// Type of the values of a schema.
    pub(super) fn of(schema: &'a Schema, is_resource: bool) -> Self {
        if schema.is_int_or_string {
            return Self::Dyn;
        }
        match schema.ty {
            Some(SchemaType::Array) => {
                match schema.items.as_deref().map(|items| Self::of(items, items.is_embedded_resource)) {
                    Some(Self::Unknown) | None => Self::Unknown,
                    Some(item) => Self::List(Box::new(item)),
                }
            }
            Some(SchemaType::Object) => match &schema.additional {
                Additional::Schema(value) => match Self::of(value, value.is_embedded_resource) {
                    Self::Unknown => Self::Unknown,
                    value => Self::Map(Box::new(Self::Text), Box::new(value)),
                },
                Additional::None | Additional::Any => Self::Object(schema, is_resource),
            },
            Some(SchemaType::String) => match schema.constraints.format.as_str() {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" => Self::Timestamp,
                _ => Self::Text,
            },
            Some(SchemaType::Boolean) => Self::Bool,
            Some(SchemaType::Number) => Self::Double,
            Some(SchemaType::Integer) => Self::Int,
            None if is_resource => Self::Object(schema, true),
            None => Self::Unknown,
        }
    }

    pub(super) fn optional(self) -> Self {
        match self {
            optional @ Self::Optional(_) => optional,
            other => Self::Optional(Box::new(other)),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Type of the items of a list.
    pub(super) fn element(&self) -> Self {
        match self {
            Self::List(item) => (**item).clone(),
            _ => Self::Dyn,
        }
    }

    /// `true` if values of both types can be compared.
    pub(super) fn fits(&self, other: &Self) -> bool {
        let is_scalar = |ty: &Self| {
            matches!(ty, Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Text | Self::Bytes)
        };
        match (self, other) {
            (Self::Dyn | Self::Unknown, _) | (_, Self::Dyn | Self::Unknown) => true,
            (Self::Null, other) | (other, Self::Null) => !is_scalar(other),
            (Self::List(own), Self::List(other)) | (Self::Optional(own), Self::Optional(other)) => {
                own.fits(other)
            }
            (Self::Map(keys, values), Self::Map(other_keys, other_values)) => {
                keys.fits(other_keys) && values.fits(other_values)
            }
            (Self::Library(own), Self::Library(other)) => own == other,
            // A literal of a map is no object.
            (own, other) => std::mem::discriminant(own) == std::mem::discriminant(other),
        }
    }

    /// Type of values of either type.
    pub(super) fn joined(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Null, _) => other,
            (Self::List(item), _) if matches!(**item, Self::Dyn) && matches!(other, Self::List(_)) => other,
            _ if self.fits(&other) && !matches!(other, Self::Dyn) => self,
            _ => Self::Dyn,
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Unknown => f.write_str("dyn"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::OfTypes => f.write_str("type"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(..) | Self::Metadata => f.write_str("object"),
            Self::Optional(content) => write!(f, "optional_type({content})"),
            Self::Library(name) => f.write_str(name),
        }
    }
}
