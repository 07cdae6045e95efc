//! Parser for lines of the exposition format 0.0.4.

use std::{iter::Peekable, str::Chars};

/// Parsed line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    Help {
        metric: String,
        text: String,
    },
    Type {
        metric: String,
        kind: String,
    },
    Sample(Sample),
    /// Empty line or comment.
    Other,
}

/// Label names and values, in the order of the line.
pub(super) type Labels = Vec<(String, String)>;

/// Sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// Parses a line.
pub(super) fn parse(line: &str) -> Result<Line, String> {
    if line.trim().is_empty() {
        return Ok(Line::Other);
    }
    if let Some(comment) = line.strip_prefix('#') {
        return parse_comment(comment);
    }
    parse_sample(line).map(Line::Sample)
}

fn parse_comment(comment: &str) -> Result<Line, String> {
    let mut words = comment.trim_start().splitn(3, ' ');
    let (keyword, metric, rest) =
        (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !matches!(keyword, Some("HELP" | "TYPE")) {
        return Ok(Line::Other);
    }
    if !is_metric_name(metric) {
        return Err(format!("invalid metric name {metric:?}"));
    }
    let metric = metric.to_owned();
    if keyword == Some("HELP") {
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            if c == '\\' && !matches!(chars.next(), Some('\\' | 'n')) {
                return Err("invalid escape sequence in a help text".to_owned());
            }
        }
        return Ok(Line::Help { metric, text: rest.to_owned() });
    }
    match rest {
        "counter" | "gauge" | "histogram" | "summary" | "untyped" => {
            Ok(Line::Type { metric, kind: rest.to_owned() })
        }
        other => Err(format!("invalid type {other:?}")),
    }
}

fn parse_sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !is_metric_name(name) {
        return Err(format!("invalid metric name {name:?}"));
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or("no value")?;
    let value = parse_number(value).ok_or_else(|| format!("invalid value {value:?}"))?;
    if let Some(timestamp) = words.next()
        && timestamp.parse::<i64>().is_err()
    {
        return Err(format!("invalid timestamp {timestamp:?}"));
    }
    if words.next().is_some() {
        return Err("text after the timestamp".to_owned());
    }
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// Parses a number in Go's syntax.
fn parse_number(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) => None,
        _ => text.parse().ok(),
    }
}

/// Parses the labels after `{`. Returns the text after `}`.
fn parse_labels(text: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (name, after) = rest.split_once('=').ok_or("label without a value")?;
        let name = name.trim();
        if !is_label_name(name) {
            return Err(format!("invalid label name {name:?}"));
        }
        let after = after.trim_start().strip_prefix('"').ok_or("label value without quotes")?;
        let (value, after) = parse_quoted(after)?;
        if labels.iter().any(|(other, _)| other == name) {
            return Err(format!("duplicate label {name:?}"));
        }
        labels.push((name.to_owned(), value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with('}') => {}
            None => return Err("no comma between labels".to_owned()),
        }
    }
}

/// Parses up to the closing quote. Returns the text after it.
fn parse_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars: Peekable<Chars<'_>> = text.chars().peekable();
    let mut length = 0;
    while let Some(c) = chars.next() {
        length += c.len_utf8();
        match c {
            '"' => return Ok((value, text.get(length..).unwrap_or_default())),
            '\\' => {
                match chars.next() {
                    Some('n') => value.push('\n'),
                    Some(escaped @ ('\\' | '"')) => value.push(escaped),
                    _ => return Err("invalid escape sequence in a label value".to_owned()),
                }
                length += 1;
            }
            c => value.push(c),
        }
    }
    Err("label value without a closing quote".to_owned())
}

fn is_metric_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

fn is_label_name(text: &str) -> bool {
    is_metric_name(text) && !text.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_escapes_and_timestamps() {
        let labels = vec![("a".to_owned(), "x\"y\\z\n".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(
            parse(r#"m_total{a="x\"y\\z\n", b=""} 1e+06 1700000000000"#),
            Ok(Line::Sample(Sample { name: "m_total".to_owned(), labels, value: 1e6 }))
        );
        assert!(matches!(parse("up 1"), Ok(Line::Sample(sample)) if sample.labels.is_empty()));
        assert!(matches!(parse("up{} +Inf"), Ok(Line::Sample(sample)) if sample.value.is_infinite()));
    }

    #[test]
    fn rejects_invalid_lines() {
        for (line, message) in [
            ("1m 1", "invalid metric name"),
            ("m", "no value"),
            ("m{a=\"b\"} ", "no value"),
            ("m one", "invalid value"),
            ("m 1 now", "invalid timestamp"),
            ("m 1 2 3", "after the timestamp"),
            ("m{a} 1", "without a value"),
            ("m{a=b} 1", "without quotes"),
            ("m{a=\"b} 1", "without a closing quote"),
            ("m{a=\"\\t\"} 1", "invalid escape sequence"),
            ("m{a:b=\"c\"} 1", "invalid label name"),
            ("m{a=\"b\" c=\"d\"} 1", "no comma"),
            ("m{a=\"b\",a=\"c\"} 1", "duplicate"),
            ("# TYPE m counters", "invalid type"),
            ("# HELP m-n x", "invalid metric name"),
            ("# HELP m \\x", "invalid escape sequence"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }

    #[test]
    fn ignores_comments_and_empty_lines() {
        for line in ["", "  ", "# a comment", "#", "# EOF"] {
            assert_eq!(parse(line), Ok(Line::Other));
        }
    }
}
