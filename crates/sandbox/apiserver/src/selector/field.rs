use std::sync::Arc;

use serde_json::Value;

use crate::{
    Object, Resource,
    custom::CustomVersion,
    json::at,
    kind::Kind,
    label_selector::SelectorError,
    selectable_field::{self, SelectableField},
};

/// Field selector.
///
/// Upstream counterpart: `fields.Selector`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Arc<[FieldRequirement]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    BuiltIn(&'static SelectableField),
    /// Name of a field of a custom resource, such as `spec.color`.
    Custom(String),
}

impl Field {
    fn find(name: &str, kind: &Kind) -> Option<Self> {
        let is_selectable =
            |custom: &&Arc<CustomVersion>| custom.selectable_fields.iter().any(|field| field == name);
        let custom = || kind.custom.as_ref().filter(is_selectable).map(|_| Self::Custom(name.to_owned()));
        kind.resource.selectable_field(name).map(Self::BuiltIn).or_else(custom)
    }

    /// Name of a field that is not one of a custom resource.
    fn built_in(&self) -> Option<&'static str> {
        match self {
            Self::BuiltIn(field) => Some(field.name),
            Self::Custom(_) => None,
        }
    }

    fn matches(&self, object: &Value, wanted: &str) -> bool {
        match self {
            Self::BuiltIn(field) => field.matches(object, wanted),
            Self::Custom(name) => {
                let path: Vec<&str> = name.split('.').collect();
                selectable_field::is_equal(at(object, &path), wanted, "")
            }
        }
    }
}

impl FieldSelector {
    /// Parses the `fieldSelector` parameter: `a=b,c==d,e!=f`. A backslash escapes a comma, an equals sign or a backslash.
    ///
    /// # Errors
    ///
    /// The syntax is invalid, or `resource` does not support a field.
    pub fn parse(text: &str, resource: Resource) -> Result<Self, SelectorError> {
        Self::parse_for(text, &resource.into())
    }

    /// As [`parse`](Self::parse), for a version of a custom resource, too.
    pub(crate) fn parse_for(text: &str, kind: &Kind) -> Result<Self, SelectorError> {
        Self::parse_with(text, |key| Field::find(key, kind).ok_or_else(|| unknown_field(key, kind)))
    }

    /// Checks the syntax of a selector.
    pub(crate) fn check(text: &str) -> Result<(), SelectorError> {
        Self::parse_with(text, |_| Ok(Field::Custom(String::new()))).map(drop)
    }

    fn parse_with(
        text: &str,
        field: impl Fn(&str) -> Result<Field, SelectorError>,
    ) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for term in split_unescaped(text).into_iter().filter(|term| !term.is_empty()) {
            let invalid = || SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'"));
            let operators = [("!=", false), ("==", true), ("=", true)];
            let at = term.find('=').map(|at| if term[..at].ends_with('!') { at - 1 } else { at });
            let (key, rest) = term.split_at(at.ok_or_else(invalid)?);
            let (value, equal) = operators
                .iter()
                .find_map(|(symbol, equal)| Some((rest.strip_prefix(symbol)?, *equal)))
                .ok_or_else(invalid)?;
            requirements.push(FieldRequirement {
                field: field(key)?,
                equal,
                value: unescape(value).ok_or_else(invalid)?,
            });
        }
        Ok(Self(requirements.into()))
    }

    /// `true` if the fields of `object` match.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| term.field.matches(object, &term.value) == term.equal)
    }

    /// As [`matches`](Self::matches). Decodes the object only if a field other than its name is selected.
    pub(super) fn matches_object(&self, object: &Object) -> bool {
        self.0.iter().all(|FieldRequirement { field, equal, value }| {
            let is_match = match field.built_in() {
                Some("metadata.name") => object.name() == value,
                Some("metadata.namespace") => object.namespace() == value,
                _ => field.matches(object.value(), value),
            };
            is_match == *equal
        })
    }

    /// `true` if every object matches.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name that every match must have. It turns a list into a lookup.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        let term = self.0.iter().find(|term| term.equal && term.field.built_in() == Some("metadata.name"))?;
        Some(&term.value)
    }
}

fn unknown_field(key: &str, kind: &Kind) -> SelectorError {
    SelectorError(if kind.custom.is_some() || kind.resource.has_own_selectable_fields() {
        format!("field label not supported: {key}")
    } else {
        format!("\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(chars.next().filter(|c| "\\,=".contains(*c))?),
            '=' => return None,
            c => plain.push(c),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn escapes_empty_values_and_defaults() {
        let pod =
            json!({"metadata": {"name": "a,b"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        let matches = |text| FieldSelector::parse(text, Resource::PODS).unwrap().matches(&pod);
        assert!(matches(r"metadata.name=a\,b,spec.nodeName==n"));
        assert!(matches("status.phase!=Succeeded,status.phase!=Failed"));
        assert!(matches("metadata.namespace="));
        assert!(matches("spec.hostNetwork=false"));
        assert!(!matches("spec.nodeName!=n"));
    }

    #[test]
    fn unknown_field_is_named() {
        let error = |resource| FieldSelector::parse("foo=bar", resource).unwrap_err().to_string();
        assert_eq!(error(Resource::PODS), "field label not supported: foo");
        assert_eq!(
            error(Resource::DEPLOYMENTS),
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert!(FieldSelector::parse("metadata.name", Resource::PODS).is_err());
        assert!(FieldSelector::parse(r"metadata.name=a\b", Resource::PODS).is_err());
    }
}
