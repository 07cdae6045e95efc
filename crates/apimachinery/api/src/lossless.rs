//! Structs that keep unknown fields.

use std::collections::BTreeMap;

use serde::{
    Serialize, Serializer,
    de::{Deserialize, Deserializer, IgnoredAny},
};
use serde_json::Value;

/// Unknown fields of a JSON object, as they were read.
///
/// Almost always empty, which costs one pointer.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::box_collection, reason = "one word instead of three, in every object")]
pub struct Extra(Option<Box<BTreeMap<String, Value>>>);

impl Extra {
    /// Adds the field `name`.
    pub fn insert(&mut self, name: String, value: Value) {
        self.0.get_or_insert_default().insert(name, value);
    }

    /// Returns the field `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }

    /// Returns all fields, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }

    /// `true` if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Values that Go's `omitempty` omits.
pub(crate) trait Unset {
    /// `true` for `None`, 0, `false`, and empty strings and collections.
    fn is_unset(&self) -> bool;
}

impl<T> Unset for Option<T> {
    fn is_unset(&self) -> bool {
        self.is_none()
    }
}

impl<T> Unset for Vec<T> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Unset for BTreeMap<K, V> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl Unset for std::sync::Arc<str> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl Unset for String {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl Unset for i32 {
    fn is_unset(&self) -> bool {
        *self == 0
    }
}

impl Unset for i64 {
    fn is_unset(&self) -> bool {
        *self == 0
    }
}

impl Unset for bool {
    fn is_unset(&self) -> bool {
        !*self
    }
}

/// Field that is neither kept nor written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped;

impl Unset for Dropped {
    fn is_unset(&self) -> bool {
        true
    }
}

impl<'de> Deserialize<'de> for Dropped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

impl Serialize for Dropped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

/// Defines a struct that keeps the unknown fields of a JSON object in `extra`.
///
/// Each field has a JSON key. `null` is the default value, as in Go. A field that [`is_unset`](Unset::is_unset) is
/// not written unless it is marked `always`.
///
/// serde's `flatten` buffers every object, which is several times slower and cannot keep the template as raw text.
macro_rules! lossless {
    (@skip always ($value:expr)) => { false };
    (@skip ($value:expr)) => { $crate::lossless::Unset::is_unset($value) };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $ty:ty = $json:literal $($mode:ident)? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* $field_vis $field: $ty, )*
            /// Fields that this version does not know, kept as they came.
            pub extra: $crate::Extra,
        }

        const _: () = {
            #[allow(non_camel_case_types)]
            enum Field { $( $field, )* Other(String) }

            impl<'de> serde::Deserialize<'de> for Field {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct FieldVisitor;
                    impl serde::de::Visitor<'_> for FieldVisitor {
                        type Value = Field;
                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str("a field name")
                        }
                        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Field, E> {
                            Ok(match name {
                                $( $json => Field::$field, )*
                                other => Field::Other(other.to_owned()),
                            })
                        }
                    }
                    deserializer.deserialize_identifier(FieldVisitor)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct ObjectVisitor;
                    impl<'de> serde::de::Visitor<'de> for ObjectVisitor {
                        type Value = $name;
                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str(concat!("a ", stringify!($name), " object"))
                        }
                        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                            let mut object = $name::default();
                            while let Some(field) = map.next_key()? {
                                match field {
                                    $( Field::$field => {
                                        object.$field = map.next_value::<Option<$ty>>()?.unwrap_or_default();
                                    } )*
                                    Field::Other(name) => {
                                        let value = map.next_value()?;
                                        object.extra.insert(name, value);
                                    }
                                }
                            }
                            Ok(object)
                        }
                    }
                    deserializer.deserialize_map(ObjectVisitor)
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    use serde::ser::SerializeMap;
                    let mut map = serializer.serialize_map(None)?;
                    $( if !lossless!(@skip $($mode)? (&self.$field)) {
                        map.serialize_entry($json, &self.$field)?;
                    } )*
                    for (name, value) in self.extra.iter() {
                        map.serialize_entry(name, value)?;
                    }
                    map.end()
                }
            }
        };
    };
}
