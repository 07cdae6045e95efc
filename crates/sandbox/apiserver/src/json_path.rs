//! JSONPath of printer columns: fields, indexes, wildcards and comparisons.
//!
//! Upstream counterpart: `client-go/util/jsonpath`. Unions, slices and recursive descent are not supported.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// `.name` or `['name']`.
    Field(String),
    /// `[0]`; a negative index counts from the end.
    Index(i64),
    /// `[*]` or `.*`.
    Wildcard,
    /// `[?(@.path=="value")]` or `!=`.
    Filter { path: JsonPath, equal: bool, value: Value },
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    ///
    /// The reason why the path is invalid or not supported.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first == '.' {
                let after = &rest[1..];
                if after.starts_with('.') {
                    return Err("recursive descent is not supported".to_owned());
                }
                let (name, left) = field_name(after);
                match name.as_str() {
                    "" => {}
                    "*" => steps.push(Step::Wildcard),
                    _ => steps.push(Step::Field(name)),
                }
                rest = left;
            } else if first == '[' {
                let end = closing_bracket(rest).ok_or("unterminated array")?;
                steps.push(bracket(&rest[1..end])?);
                rest = &rest[end + 1..];
            } else {
                return Err(format!("unexpected character {first:?}"));
            }
        }
        Ok(Self(steps))
    }

    /// Returns the values at the path.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

/// Splits off a field name. A backslash escapes the next character.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// Position of the bracket that closes the one at the start. Brackets in quotes do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Result<Step, String> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::Wildcard);
    }
    if let Some(name) = quoted(text) {
        return Ok(Step::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return self::filter(filter);
    }
    text.parse().map(Step::Index).map_err(|_| format!("[{text}] is not supported"))
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn filter(text: &str) -> Result<Step, String> {
    let unsupported = || format!("filter {text:?} is not supported");
    let (path, equal, value) = match (text.split_once("=="), text.split_once("!=")) {
        (Some((path, value)), _) => (path, true, value),
        (None, Some((path, value))) => (path, false, value),
        (None, None) => return Err(unsupported()),
    };
    let path = path.trim().strip_prefix('@').ok_or_else(unsupported)?;
    let value = value.trim();
    let value = match quoted(value) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(value).map_err(|_| unsupported())?,
    };
    Ok(Step::Filter { path: JsonPath::parse(path)?, equal, value })
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), _) => value.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { length + index } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::Wildcard, Value::Array(items)) => items.iter().collect(),
            (Self::Wildcard, Value::Object(members)) => members.values().collect(),
            (Self::Filter { path, equal, value: wanted }, Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    let found = path.find(item);
                    !found.is_empty() && found.contains(&wanted) == *equal
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_values() {
        let object = json!({
            "spec": {"size": 3, "a.b": "dotted", "list": [{"n": 1}, {"n": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
        });
        let find = |path: &str| {
            JsonPath::parse(path).unwrap().find(&object).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(find(".spec.size"), [json!(3)]);
        assert_eq!(find(r".spec.a\.b"), [json!("dotted")]);
        assert_eq!(find(".spec['a.b']"), [json!("dotted")]);
        assert_eq!(find(".spec.list[*].n"), [json!(1), json!(2)]);
        assert_eq!(find(".spec.list[-1].n"), [json!(2)]);
        assert_eq!(find(".spec.list[?(@.n==2)].n"), [json!(2)]);
        assert_eq!(find(r#".status.conditions[?(@.type=="Ready")].status"#), [json!("True")]);
        assert_eq!(find(".status.conditions[?(@.type!='Ready')].status"), [json!("False")]);
        assert!(find(".spec.missing.deep").is_empty());
        for unsupported in ["..x", ".a[0:2]", ".a[", "x", ".a[?(@.b>1)]"] {
            assert!(JsonPath::parse(unsupported).is_err(), "{unsupported}");
        }
    }
}
