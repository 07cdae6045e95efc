//! Patterns for expected output, one per line.
//!
//! `*` matches any text within the line, and a run of white space matches any other run, so that table layout, ages, hashes
//! and generated names are ignored. `\*` matches an asterisk.

/// `true` if the pattern matches the whole line.
pub(super) fn matches(pattern: &str, line: &str) -> bool {
    glob(&squeeze(pattern), &squeeze(line))
}

/// Searches for lines that match `patterns`, in this order. Returns the first pattern without a match.
pub(super) fn missing<'a>(patterns: &'a str, text: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines_of(patterns).find(|pattern| !lines.any(|line| matches(pattern, line)))
}

/// `true` if the non-empty lines of `text` match `patterns` exactly.
pub(super) fn is_exactly(patterns: &str, text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines_of(patterns).all(|pattern| lines.next().is_some_and(|line| matches(pattern, line)))
        && lines.next().is_none()
}

fn lines_of(patterns: &str) -> impl Iterator<Item = &str> {
    patterns.lines().map(str::trim).filter(|pattern| !pattern.is_empty())
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = split_at_stars(pattern).into_iter();
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    let mut parts: Vec<String> = parts.collect();
    // Without an asterisk, the whole text must be equal.
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in &parts {
        let Some(at) = rest.find(part.as_str()) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(&last)
}

fn split_at_stars(pattern: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for character in pattern.chars() {
        match character {
            '\\' if !escaped => escaped = true,
            '*' if !escaped => parts.push(String::new()),
            other => {
                if let Some(part) = parts.last_mut() {
                    if escaped && other != '*' {
                        part.push('\\');
                    }
                    part.push(other);
                }
                escaped = false;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asterisk_matches_any_text() {
        assert!(matches("web 3/3 3 3 *s", "web    3/3   3     3   12s"));
        assert!(!matches("web 3/3", "web 3/3 3"));
        assert!(!matches("web 3/3", "the web 3/3"));
        assert!(matches("*not found", "Error: x not found"));
        assert!(matches("a*b*c", "a1b2b3c") && !matches("a*b*c", "a1c"));
        assert!(!matches("ab*ba", "aba"), "prefix and suffix must not overlap");
        assert!(matches(r"\* spec: *", "* spec: bad") && !matches(r"\* spec: *", "x spec: bad"));
        assert!(matches(r#"{"a":"\n"}"#, r#"{"a":"\n"}"#), "other backslashes are literal");
    }

    #[test]
    fn patterns_must_match_in_order() {
        let text = "a\nb\nc\n";
        assert_eq!(missing("a\n  c", text), None);
        assert_eq!(missing("c\na", text), Some("a"));
        assert!(is_exactly("a\nb\nc", text));
        assert!(!is_exactly("a\nb", text) && !is_exactly("a\nb\nc\nd", text));
        assert!(is_exactly("", "\n"));
    }
}
