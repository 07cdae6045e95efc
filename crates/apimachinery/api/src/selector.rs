//! Label selectors: their declaration, and the compiled form that matches labels.

use std::{cmp::Ordering, collections::BTreeMap};

use kcm_meta::Object;
use thiserror::Error;

use crate::Labels;

lossless! {
    /// Declaration of a label selector.
    ///
    /// Upstream counterpart: `metav1.LabelSelector`.
    pub struct LabelSelector {
        /// Required labels with their values.
        pub match_labels: BTreeMap<String, String> = "matchLabels",
        /// Further requirements. All must be met.
        pub match_expressions: Vec<LabelSelectorRequirement> = "matchExpressions",
    }
}

lossless! {
    /// Requirement of a label selector.
    pub struct LabelSelectorRequirement {
        /// Key of the label.
        pub key: String = "key" always,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: String = "operator" always,
        /// Values for `In` and `NotIn`.
        pub values: Vec<String> = "values",
    }
}

/// Invalid selector. API servers reject such objects.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The operator is unknown.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// `In` or `NotIn` without values.
    #[error("key {0:?}: for 'in', 'notin' operators, values set can't be empty")]
    NoValues(String),
    /// `Exists` or `DoesNotExist` with values.
    #[error("key {0:?}: values set must be empty for exists and does not exist")]
    Values(String),
    /// The key is not a valid label key.
    #[error("key {0:?}: not a valid label key")]
    Key(String),
    /// The value is not a valid label value.
    #[error("key {0:?}: {1:?} is not a valid label value")]
    Value(String, String),
}

/// Compiled label selector.
///
/// Upstream counterpart: `labels.Selector`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Nothing,
    All(Vec<Requirement>),
}

/// Requirement on the value of one label.
///
/// Upstream counterpart: `labels.Requirement`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Operands. `Exists` and `DoesNotExist` have none, all operators except `In` and `NotIn` at most one.
    pub values: Vec<String>,
}

/// Operator of a [`Requirement`]. `GreaterThan` and `LessThan` compare integers.
///
/// [`LabelSelector`] has the first four. The others are part of the text form, `app=web,tier!=db,n>5`.
///
/// Upstream counterpart: `selection.Operator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are upstream's")]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
    Equals,
    NotEquals,
}

impl Selector {
    /// Compiles a selector. `None` matches nothing, an empty selector matches everything (US-3.4).
    ///
    /// Upstream counterpart: `metav1.LabelSelectorAsSelector`.
    ///
    /// # Errors
    ///
    /// If an operator, a key or a value is invalid.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else { return Ok(Self(Kind::Nothing)) };
        let mut requirements =
            Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
        for (key, value) in &selector.match_labels {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.clone()]));
        }
        for expression in &selector.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(Requirement::new(&expression.key, operator, expression.values.clone()));
        }
        requirements.iter().try_for_each(Requirement::validate)?;
        Ok(Self(Kind::All(requirements)))
    }

    /// Returns a selector of the objects that have all of `labels`.
    ///
    /// Upstream counterpart: `labels.ValidatedSelectorFromSet`.
    ///
    /// # Errors
    ///
    /// If a key or a value is invalid.
    pub fn from_set(labels: &Labels) -> Result<Self, SelectorError> {
        Self::new(Some(&LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() }))
    }

    /// `true` if `labels` meet all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_values(|key| labels.get(key).map(String::as_str))
    }

    /// `true` if the labels of `object` meet all requirements.
    pub fn matches_object(&self, object: &impl Object) -> bool {
        self.matches_values(|key| object.label(key))
    }

    /// `true` if all requirements are met by the labels of which `label` returns the values.
    fn matches_values<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.0 {
            Kind::Nothing => false,
            Kind::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            }
        }
    }

    /// `true` if there are no requirements: the selector matches everything.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Kind::All(requirements) if requirements.is_empty())
    }

    /// Returns the only value of label `key` with which the selector can match, if there is one.
    ///
    /// Caches use it to look up objects by that label.
    pub fn required_value(&self, key: &str) -> Option<&str> {
        let Kind::All(requirements) = &self.0 else { return None };
        let single = |requirement: &&Requirement| {
            requirement.key == key
                && requirement.values.len() == 1
                && matches!(requirement.operator, Operator::In | Operator::Equals)
        };
        requirements.iter().find(single)?.values.first().map(String::as_str)
    }
}

impl Requirement {
    /// Creates a requirement. It may be invalid.
    pub fn new(key: impl Into<String>, operator: Operator, values: Vec<String>) -> Self {
        Self { key: key.into(), operator, values }
    }

    /// `true` if a label with `value` meets the requirement. `None` if the object does not have the label.
    ///
    /// Upstream counterpart: `labels.Requirement.Matches`.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|listed| listed == value);
        let is_ordered = |expected| {
            let number = |text: &str| text.parse::<i64>().ok();
            let operand = self.values.first().and_then(|operand| number(operand));
            value
                .and_then(number)
                .zip(operand)
                .is_some_and(|(value, operand)| value.cmp(&operand) == expected)
        };
        match self.operator {
            Operator::In | Operator::Equals => value.is_some_and(is_listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(is_listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => is_ordered(Ordering::Greater),
            Operator::LessThan => is_ordered(Ordering::Less),
        }
    }

    fn validate(&self) -> Result<(), SelectorError> {
        let Self { key, operator, values } = self;
        let has_operands = !matches!(operator, Operator::Exists | Operator::DoesNotExist);
        if !has_operands && !values.is_empty() {
            return Err(SelectorError::Values(key.clone()));
        }
        if !is_qualified_name(key) {
            return Err(SelectorError::Key(key.clone()));
        }
        if has_operands && values.is_empty() {
            return Err(SelectorError::NoValues(key.clone()));
        }
        match values.iter().find(|value| !is_label_value(value)) {
            Some(invalid) => Err(SelectorError::Value(key.clone(), invalid.clone())),
            None => Ok(()),
        }
    }
}

/// `true` if `text` is a valid label value: empty, or at most 63 characters, with alphanumeric first and last
/// characters.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// `true` if `text` is a valid label key: a name, optionally with a DNS subdomain and a slash before it.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
    }
}

/// `true` if `text` is a lowercase RFC 1123 subdomain.
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
    fn absent_matches_nothing_and_empty_everything() {
        assert!(!Selector::new(None).unwrap().matches(&labels(&[("a", "b")])));
        let empty = compile(json!({})).unwrap();
        assert!(empty.matches(&labels(&[])) && empty.is_empty());
    }

    #[test]
    fn operators() {
        let expression = |operator: &str, values: &[&str]| {
            compile(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
                .unwrap()
        };
        let (b, c, none) = (labels(&[("a", "b")]), labels(&[("a", "c")]), labels(&[]));
        let matches = |s: &Selector| (s.matches(&b), s.matches(&c), s.matches(&none));
        assert_eq!(matches(&expression("In", &["b", "x"])), (true, false, false));
        assert_eq!(matches(&expression("NotIn", &["b"])), (false, true, true));
        assert_eq!(matches(&expression("Exists", &[])), (true, true, false));
        assert_eq!(matches(&expression("DoesNotExist", &[])), (false, false, true));
    }

    #[test]
    fn operators_of_the_text_form() {
        struct Case {
            operator: Operator,
            operand: &'static str,
            /// For the values "5" and "x", and for an object without the label.
            matches: [bool; 3],
        }
        let check = |Case { operator, operand, matches }| {
            let requirement = Requirement::new("n", operator, vec![operand.to_owned()]);
            let values = [Some("5"), Some("x"), None];
            assert_eq!(values.map(|value| requirement.matches(value)), matches, "{operator:?} {operand}");
        };
        check(Case { operator: Operator::Equals, operand: "5", matches: [true, false, false] });
        check(Case { operator: Operator::NotEquals, operand: "5", matches: [false, true, true] });
        check(Case { operator: Operator::GreaterThan, operand: "4", matches: [true, false, false] });
        check(Case { operator: Operator::GreaterThan, operand: "5", matches: [false; 3] });
        check(Case { operator: Operator::LessThan, operand: "6", matches: [true, false, false] });
        check(Case { operator: Operator::LessThan, operand: "x", matches: [false; 3] });
    }

    #[test]
    fn invalid_selector_is_an_error() {
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
    fn required_value_needs_a_single_value() {
        let selector = compile(json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        }))
        .unwrap();
        assert_eq!(selector.required_value("app"), Some("web"));
        assert_eq!(selector.required_value("tier"), None);
    }
}
