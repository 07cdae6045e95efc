//! Members of JSON objects, as text.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::{RawValue, to_raw_value};

/// Members of a JSON object in their order, as text.
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Parses an object. `null` has no members.
    pub(super) fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        Ok(serde_json::from_str::<Option<Self>>(json)?.unwrap_or(Self(Vec::new())))
    }

    pub(super) fn get(&self, name: &str) -> &'a str {
        self.0.iter().rfind(|(key, _)| key == name).map_or("null", |(_, value)| value.get())
    }

    /// Returns the object with the member `name` set to `value`, or removed.
    pub(super) fn with<'b>(
        mut self,
        name: &str,
        value: Option<&'b RawValue>,
    ) -> Result<Box<RawValue>, serde_json::Error>
    where
        'a: 'b,
    {
        let place = self.0.iter().position(|(key, _)| key == name).unwrap_or(self.0.len());
        self.0.retain(|(key, _)| key != name);
        let mut members: Members<'b> = self;
        if let Some(value) = value {
            members.0.insert(place, (name.to_owned(), value));
        }
        to_raw_value(&members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
