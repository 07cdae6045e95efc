//! Fields of a kind that field selectors support.

use serde_json::Value;

use crate::json::at;

/// Field that is supported in field selectors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SelectableField {
    /// Name in the selector.
    pub(crate) name: &'static str,
    /// Paths of the value. The first non-empty value is used.
    pub(crate) paths: &'static [&'static [&'static str]],
    /// Value of an absent field.
    pub(crate) absent: &'static str,
}

impl SelectableField {
    pub(crate) fn matches(&self, object: &Value, wanted: &str) -> bool {
        let found =
            self.paths.iter().filter_map(|path| at(object, path)).find(|value| value.as_str() != Some(""));
        is_equal(found, wanted, self.absent)
    }
}

/// `true` if a value is written as `wanted` in a selector.
pub(crate) fn is_equal(value: Option<&Value>, wanted: &str, absent: &str) -> bool {
    match value {
        None | Some(Value::Null) => wanted == absent,
        Some(Value::String(text)) => text == wanted,
        Some(other) => {
            let text = other.to_string();
            text == wanted
        }
    }
}
