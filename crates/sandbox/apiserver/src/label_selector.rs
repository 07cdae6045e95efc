//! Label selectors.

use std::{fmt, sync::Arc};

use kcm_api::selector::{Operator, Requirement};
use serde_json::Value;

use crate::{
    json::{at, list_at, str_at},
    validate::names::{label_value, qualified_name},
};

/// Invalid selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

/// Label selector.
///
/// Upstream counterpart: `labels.Selector`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Arc<[Requirement]>);

/// Creates a requirement with sorted values, without duplicates.
fn requirement(key: &str, operator: Operator, values: impl IntoIterator<Item = String>) -> Requirement {
    let mut values: Vec<String> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    Requirement::new(key, operator, values)
}

impl LabelSelector {
    /// Parses the `labelSelector` parameter: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Lexer { rest: text }.collect::<Vec<_>>().into_iter().peekable();
        let mut requirements = Vec::new();
        let fail = |what: String| SelectorError(format!("unable to parse requirement: {what}"));
        while let Some(token) = tokens.next() {
            let negated = token == Token::Not;
            let key = match if negated { tokens.next() } else { Some(token) } {
                Some(Token::Word(key)) => check_key(key)?,
                other if negated => {
                    return Err(fail(format!("found '{}', expected: identifier", show(other))));
                }
                other => {
                    let found = show(other);
                    let expected = "!, identifier, or 'end of string'";
                    return Err(SelectorError(format!("found '{found}', expected: {expected}")));
                }
            };
            requirements.push(if negated {
                requirement(key, Operator::DoesNotExist, [])
            } else {
                match tokens.peek().copied() {
                    None | Some(Token::Comma) => requirement(key, Operator::Exists, []),
                    Some(operator) => {
                        tokens.next();
                        let (operator, set) = match operator {
                            Token::Equals => (Operator::Equals, false),
                            Token::NotEquals => (Operator::NotEquals, false),
                            Token::Greater => (Operator::GreaterThan, false),
                            Token::Less => (Operator::LessThan, false),
                            Token::Word("in") => (Operator::In, true),
                            Token::Word("notin") => (Operator::NotIn, true),
                            other => {
                                let expected = "in, notin, =, ==, !=, gt, lt";
                                let found = show(Some(other));
                                return Err(fail(format!("found '{found}', expected: {expected}")));
                            }
                        };
                        let values = if set {
                            parse_set(&mut tokens)?
                        } else {
                            match tokens.peek().copied() {
                                None | Some(Token::Comma | Token::Word(_)) => vec![parse_value(&mut tokens)],
                                other => {
                                    let found = show(other);
                                    return Err(fail(format!("found '{found}', expected: identifier")));
                                }
                            }
                        };
                        for value in &values {
                            check_value(key, value)?;
                        }
                        if matches!(operator, Operator::GreaterThan | Operator::LessThan)
                            && values.iter().any(|value| value.parse::<i64>().is_err())
                        {
                            let values = values.concat();
                            return Err(fail(format!(
                                "for 'Gt', 'Lt' operators, the value must be an integer: {values}"
                            )));
                        }
                        requirement(key, operator, values)
                    }
                }
            });
            match tokens.next() {
                None => break,
                Some(Token::Comma) if matches!(tokens.peek(), Some(Token::Word(_) | Token::Not)) => {}
                Some(Token::Comma) => {
                    let found = show(tokens.next());
                    return Err(SelectorError(format!("found '{found}', expected: identifier after ','")));
                }
                other => {
                    let found = show(other);
                    return Err(SelectorError(format!("found '{found}', expected: ',' or 'end of string'")));
                }
            }
        }
        requirements.sort();
        Ok(Self(requirements.into()))
    }

    /// Converts a `LabelSelector` object with `matchLabels` and `matchExpressions`. An empty selector matches everything.
    /// An unknown operator matches nothing.
    pub fn from_object(selector: &Value) -> Self {
        let labels = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
        let equals = labels.map(|(key, value)| {
            requirement(key, Operator::Equals, [value.as_str().unwrap_or_default().to_owned()])
        });
        let expressions = list_at(selector, &["matchExpressions"]).iter().map(|expression| {
            let operator = match str_at(expression, &["operator"]) {
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                // An unknown operator has no values, so it matches nothing.
                _ => Operator::In,
            };
            let values = list_at(expression, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned);
            requirement(str_at(expression, &["key"]), operator, values)
        });
        let mut requirements: Vec<Requirement> = equals.chain(expressions).collect();
        requirements.sort();
        Self(requirements.into())
    }

    /// `true` if every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts a map of labels, as in a ReplicationController.
    pub fn from_labels(labels: &Value) -> Self {
        Self::from_object(&serde_json::json!({"matchLabels": labels}))
    }

    /// `true` if the labels of `object` match.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = at(object, &["metadata", "labels"]);
        self.matches_labels(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// `true` if the values returned by `label` match.
    pub(crate) fn matches_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator, values }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let values = values.join(",");
            match operator {
                Operator::In => write!(f, "{comma}{key} in ({values})")?,
                Operator::NotIn => write!(f, "{comma}{key} notin ({values})")?,
                Operator::Exists => write!(f, "{comma}{key}")?,
                Operator::DoesNotExist => write!(f, "{comma}!{key}")?,
                Operator::GreaterThan => write!(f, "{comma}{key}>{values}")?,
                Operator::LessThan => write!(f, "{comma}{key}<{values}")?,
                Operator::Equals => write!(f, "{comma}{key}={values}")?,
                Operator::NotEquals => write!(f, "{comma}{key}!={values}")?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
}

struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        const SYMBOLS: [(&str, Token<'static>); 9] = [
            ("==", Token::Equals),
            ("!=", Token::NotEquals),
            ("=", Token::Equals),
            ("!", Token::Not),
            (",", Token::Comma),
            ("(", Token::Open),
            (")", Token::Close),
            (">", Token::Greater),
            ("<", Token::Less),
        ];
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return None;
        }
        for (symbol, token) in SYMBOLS {
            if let Some(rest) = self.rest.strip_prefix(symbol) {
                self.rest = rest;
                return Some(token);
            }
        }
        let special = |c: char| c.is_whitespace() || "=!,()><".contains(c);
        let end = self.rest.find(special).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(Token::Word(word))
    }
}

type Tokens<'a> = std::iter::Peekable<std::vec::IntoIter<Token<'a>>>;

fn show(token: Option<Token<'_>>) -> &str {
    match token {
        None => "",
        Some(Token::Word(word)) => word,
        Some(Token::Comma) => ",",
        Some(Token::Open) => "(",
        Some(Token::Close) => ")",
        Some(Token::Not) => "!",
        Some(Token::Equals) => "=",
        Some(Token::NotEquals) => "!=",
        Some(Token::Greater) => ">",
        Some(Token::Less) => "<",
    }
}

/// Parses a value. It is empty if a comma or the end follows.
fn parse_value(tokens: &mut Tokens<'_>) -> String {
    match tokens.next_if(|token| matches!(token, Token::Word(_))) {
        Some(Token::Word(value)) => value.to_owned(),
        _ => String::new(),
    }
}

fn parse_set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, SelectorError> {
    let fail = |found: Option<Token<'_>>, expected: &str| {
        SelectorError(format!("unable to parse requirement: found '{}' expected: {expected}", show(found)))
    };
    match tokens.next() {
        Some(Token::Open) => {}
        other => return Err(fail(other, "'('")),
    }
    let mut values = vec![parse_value(tokens)];
    loop {
        match tokens.next() {
            Some(Token::Comma) => values.push(parse_value(tokens)),
            Some(Token::Close) => return Ok(values),
            other => return Err(fail(other, "',', ')' or identifier")),
        }
    }
}

fn check_key(key: &str) -> Result<&str, SelectorError> {
    let errors = qualified_name(key);
    if errors.is_empty() { Ok(key) } else { Err(invalid("<nil>", key, &errors)) }
}

fn check_value(key: &str, value: &str) -> Result<(), SelectorError> {
    let errors = label_value(value);
    if errors.is_empty() { Ok(()) } else { Err(invalid(&format!("values[0][{key}]"), value, &errors)) }
}

fn invalid(field: &str, value: &str, errors: &[String]) -> SelectorError {
    let why = errors.join("; ");
    SelectorError(format!("unable to parse requirement: {field}: Invalid value: {value:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn all_operators_match_as_upstream() {
        let web = json!({"app": "web", "tier": "front", "n": "5", "blank": ""});
        for selector in [
            "",
            "app=web",
            "app==web",
            "app!=db",
            "missing!=x",
            "app in (db, web)",
            "missing notin (a)",
            "app,!missing",
            "n>4,n<6",
            "blank=",
            "blank=,app=web",
            "  app = web , tier in (front) ",
        ] {
            assert!(matches(selector, &web), "{selector}");
        }
        for selector in
            ["app=db", "app!=web", "app notin (web)", "!app", "missing", "n>5", "n<5", "blank!=", "app>1"]
        {
            assert!(!matches(selector, &web), "{selector}");
        }
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for selector in
            ["app=web,", ",", "app in web", "app in (a", "=a", "a=b c", "!", "a>b", "-a", "a=b/c", "a b"]
        {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn selector_object_is_printed_sorted() {
        let selector = LabelSelector::from_object(&json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"},
            ],
        }));
        assert_eq!(selector.to_string(), "a=1,b=2,c in (x,y),d,!e");
        assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }
}
