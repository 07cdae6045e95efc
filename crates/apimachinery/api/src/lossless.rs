//! Structs that keep what they do not know.

use std::collections::BTreeMap;

use serde::{
    Serialize, Serializer,
    de::{Deserialize, Deserializer, IgnoredAny},
};
use serde_json::Value;

/// The fields of one JSON object that its Rust type does not name, as they came.
///
/// Empty for almost every object, and then it costs one pointer.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::box_collection, reason = "one word instead of three, in every object")]
pub struct Extra(Option<Box<BTreeMap<String, Value>>>);

impl Extra {
    /// Keeps `value` under `name`.
    pub fn insert(&mut self, name: String, value: Value) {
        self.0.get_or_insert_default().insert(name, value);
    }

    /// The value kept under `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }

    /// All that is kept, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().flat_map(|fields| fields.iter())
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Whether Go's `omitempty` would leave a value out.
pub(crate) trait Unset {
    /// True for what JSON written by Go does not show: nothing, zero, false, the empty text or collection.
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

/// A field that is known and wanted by nobody: read past, never written.
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

/// Defines a struct that reads and writes a JSON object without losing a field.
///
/// Each field names its JSON key. Fields with no entry go to `extra`. `null` reads as the default, as in Go.
/// A field that [`is_unset`](Unset::is_unset) is not written, unless it is marked `always`.
///
/// serde's `flatten` would do the same but buffers every object on the way in, which rules out keeping the
/// template as raw text and costs several times the time.
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
