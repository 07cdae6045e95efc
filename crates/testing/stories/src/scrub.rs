//! Replaces random values in recorded writes: UIDs, times, resource versions, name suffixes, the namespace.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Characters of generated name suffixes (`rand.String`): no vowels and no similar characters.
const RANDOM: &str = "[bcdfghjklmnpqrstvwxz2456789]{5}";

/// Compiles a pattern. An invalid pattern matches nothing, which the tests detect.
fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

static UID: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z?"));
/// Generated names are truncated to 58 bytes before the suffix is appended.
static CUT_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(&format!("(^|[^a-z0-9-])([a-z0-9-]{{58}}){RANDOM}($|[^a-z0-9-])")));
static NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(&format!("(?-u:\\b)([a-z0-9]+(?:-[a-z0-9]+)*-){RANDOM}(?-u:\\b)")));

/// Replaces random values in the writes of one namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scrub<'a> {
    pub(crate) namespace: &'a str,
}

impl Scrub<'_> {
    pub(crate) fn text(self, text: &str) -> String {
        let text = replace(&UID, text.to_owned(), "<uid>");
        let text = replace(&TIME, text, "<time>");
        let text = self.replace_namespace(&text);
        let text = replace(&CUT_NAME, text, "$1$2<rand>$3");
        replace(&NAME, text, "$1<rand>")
    }

    /// Replaces the namespace where it is a word: the random part of a name may contain it.
    fn replace_namespace(self, text: &str) -> String {
        let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
        let mut last = None;
        while let Some((before, after)) = rest.split_once(self.namespace) {
            let previous = before.chars().next_back().or(last);
            let is_word = ![previous, after.chars().next()].into_iter().flatten().any(char::is_alphanumeric);
            replaced.push_str(before);
            replaced.push_str(if is_word { "<ns>" } else { self.namespace });
            last = self.namespace.chars().next_back();
            rest = after;
        }
        replaced.push_str(rest);
        replaced
    }

    /// Returns an object without `managedFields`, `selfLink` and random values.
    pub(crate) fn object(self, value: &Value) -> Value {
        match value {
            Value::Object(members) => members
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "managedFields" | "selfLink"))
                .map(|(key, value)| {
                    let value = if key == "resourceVersion" { "<rv>".into() } else { self.object(value) };
                    (key.clone(), value)
                })
                .collect(),
            Value::Array(items) => items.iter().map(|item| self.object(item)).collect(),
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }
}

fn replace(pattern: &LazyLock<Option<Regex>>, text: String, by: &str) -> String {
    match &**pattern {
        Some(pattern) if pattern.is_match(&text) => pattern.replace_all(&text, by).into_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_replaces_random_values_only() {
        let scrub = Scrub { namespace: "t7x" };
        let long = "a".repeat(58);
        let cases = [
            ("Created pod: rs-4xz9k".to_owned(), "Created pod: rs-<rand>".to_owned()),
            ("web-7988b68c98".to_owned(), "web-7988b68c98".to_owned()),
            ("web-7988b68c98-bcdfg".to_owned(), "web-7988b68c98-<rand>".to_owned()),
            (format!("{long}2456z"), format!("{long}<rand>")),
            ("at 2026-01-01T10:00:00Z in t7x".to_owned(), "at <time> in <ns>".to_owned()),
            ("Deleted pod: rs-8t7xw in t7x".to_owned(), "Deleted pod: rs-<rand> in <ns>".to_owned()),
            ("11111111-2222-3333-4444-555555555555".to_owned(), "<uid>".to_owned()),
        ];
        for (text, expected) in cases {
            assert_eq!(scrub.text(&text), expected);
        }
    }

    #[test]
    fn object_replaces_versions_and_drops_managed_fields() {
        let object = json!({"metadata": {"resourceVersion": "12", "managedFields": [{}], "generation": 2}});
        let expected = json!({"metadata": {"resourceVersion": "<rv>", "generation": 2}});
        assert_eq!(Scrub { namespace: "n" }.object(&object), expected);
    }
}
