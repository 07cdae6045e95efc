//! Label selectors: as declared, and compiled for matching.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::Labels;

lossless! {
    /// A selector as it stands in an object.
    ///
    /// Upstream counterpart: `metav1.LabelSelector`.
    pub struct LabelSelector {
        /// Labels that must be there with exactly these values.
        pub match_labels: BTreeMap<String, String> = "matchLabels",
        /// Further conditions; all must hold.
        pub match_expressions: Vec<LabelSelectorRequirement> = "matchExpressions",
    }
}

lossless! {
    /// One condition of a selector.
    pub struct LabelSelectorRequirement {
        /// The label.
        pub key: String = "key" always,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: String = "operator" always,
        /// What the label is held against.
        pub values: Vec<String> = "values",
    }
}

/// A selector that no server should have let through.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// The operator is none of the four.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// `In` and `NotIn` need values.
    #[error("key {0:?}: for 'in', 'notin' operators, values set can't be empty")]
    NoValues(String),
    /// `Exists` and `DoesNotExist` take none.
    #[error("key {0:?}: values set must be empty for exists and does not exist")]
    Values(String),
    /// The key cannot be a label's.
    #[error("key {0:?}: not a valid label key")]
    Key(String),
    /// The value cannot be a label's.
    #[error("key {0:?}: {1:?} is not a valid label value")]
    Value(String, String),
}

/// A selector ready to match.
///
/// Upstream counterpart: `labels.Selector`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Nothing,
    All(Vec<Requirement>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// The compiled form of `selector`. None matches nothing; an empty one matches everything (US-3.4).
    ///
    /// Upstream counterpart: `metav1.LabelSelectorAsSelector`.
    ///
    /// # Errors
    ///
    /// When an operator is unknown, or keys or values are not what labels can be.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else { return Ok(Self(Kind::Nothing)) };
        let mut requirements =
            Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
        for (key, value) in &selector.match_labels {
            requirements.push(Requirement::new(key, Test::In(vec![value.clone()]))?);
        }
        for expression in &selector.match_expressions {
            let values = || expression.values.clone();
            let test = match expression.operator.as_str() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" if expression.values.is_empty() => Test::Exists,
                "DoesNotExist" if expression.values.is_empty() => Test::DoesNotExist,
                "Exists" | "DoesNotExist" => return Err(SelectorError::Values(expression.key.clone())),
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(Requirement::new(&expression.key, test)?);
        }
        Ok(Self(Kind::All(requirements)))
    }

    /// Whether `labels` satisfy all of it.
    pub fn matches(&self, labels: &Labels) -> bool {
        match &self.0 {
            Kind::Nothing => false,
            Kind::All(requirements) => requirements.iter().all(|r| r.matches(labels)),
        }
    }

    /// Whether it puts no condition at all, and so matches everything.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Kind::All(requirements) if requirements.is_empty())
    }

    /// The one value that label `key` must have for a match, if the selector says so.
    ///
    /// It lets a cache look up by that label instead of trying every object.
    pub fn required_value(&self, key: &str) -> Option<&str> {
        let Kind::All(requirements) = &self.0 else { return None };
        requirements.iter().find_map(|requirement| match &requirement.test {
            Test::In(values) if requirement.key == key && values.len() == 1 => {
                values.first().map(String::as_str)
            }
            _ => None,
        })
    }
}

impl Requirement {
    fn new(key: &str, test: Test) -> Result<Self, SelectorError> {
        if !is_qualified_name(key) {
            return Err(SelectorError::Key(key.to_owned()));
        }
        if let Test::In(values) | Test::NotIn(values) = &test {
            if values.is_empty() {
                return Err(SelectorError::NoValues(key.to_owned()));
            }
            if let Some(bad) = values.iter().find(|value| !is_label_value(value)) {
                return Err(SelectorError::Value(key.to_owned(), bad.clone()));
            }
        }
        Ok(Self { key: key.to_owned(), test })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
        }
    }
}

/// Whether `text` can be the value of a label: empty, or up to 63 characters, alphanumeric at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Whether `text` can be the key of a label: a name, with a DNS subdomain and a slash before it if need be.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
    }
}

/// Whether `text` is a lowercase RFC 1123 subdomain.
pub fn is_dns_subdomain(text: &str) -> bool {
    let ends = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            label.bytes().all(|byte| ends(byte) || byte == b'-')
                && label.bytes().next().is_some_and(ends)
                && label.bytes().next_back().is_some_and(ends)
        })
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn compile(selector: Value) -> Result<Selector, SelectorError> {
        let declared: LabelSelector = serde_json::from_value(selector).unwrap();
        Selector::new(Some(&declared))
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn selector_absent_matches_nothing_and_empty_matches_everything() {
        assert!(!Selector::new(None).unwrap().matches(&labels(&[("a", "b")])));
        let empty = compile(json!({})).unwrap();
        assert!(empty.matches(&labels(&[])) && empty.is_empty());
    }

    #[test]
    fn selector_with_each_operator_matches_as_upstream() {
        let expression = |operator: &str, values: &[&str]| {
            compile(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
                .unwrap()
        };
        let (b, c, none) = (labels(&[("a", "b")]), labels(&[("a", "c")]), labels(&[]));
        let verdict = |s: &Selector| (s.matches(&b), s.matches(&c), s.matches(&none));
        assert_eq!(verdict(&expression("In", &["b", "x"])), (true, false, false));
        assert_eq!(verdict(&expression("NotIn", &["b"])), (false, true, true));
        assert_eq!(verdict(&expression("Exists", &[])), (true, true, false));
        assert_eq!(verdict(&expression("DoesNotExist", &[])), (false, false, true));
    }

    #[test]
    fn selector_that_cannot_be_parsed_is_an_error() {
        let bad = |operator: &str, values: &[&str]| {
            compile(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
                .unwrap_err()
        };
        assert_eq!(bad("Near", &[]), SelectorError::Operator("Near".to_owned()));
        assert_eq!(bad("In", &[]), SelectorError::NoValues("a".to_owned()));
        assert_eq!(bad("Exists", &["b"]), SelectorError::Values("a".to_owned()));
        assert!(compile(json!({"matchLabels": {"a b": "c"}})).is_err());
        assert!(compile(json!({"matchLabels": {"a": "c d"}})).is_err());
    }

    #[test]
    fn required_value_is_known_only_where_a_single_value_will_do() {
        let selector = compile(json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        }))
        .unwrap();
        assert_eq!(selector.required_value("app"), Some("web"));
        assert_eq!(selector.required_value("tier"), None);
    }
}
