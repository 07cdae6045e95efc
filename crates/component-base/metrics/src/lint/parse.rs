//! Lines of the exposition format 0.0.4, in full strictness.

use std::{iter::Peekable, str::Chars};

use crate::options::{is_label_name, is_metric_name};

/// What a line says.
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
    /// Nothing, or a comment.
    Other,
}

/// Names and values, in the order of the line.
pub(super) type Labels = Vec<(String, String)>;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) value: f64,
}

/// Reads a line.
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
        return Err(format!("{metric:?} is no metric's name"));
    }
    let metric = metric.to_owned();
    if keyword == Some("HELP") {
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            if c == '\\' && !matches!(chars.next(), Some('\\' | 'n')) {
                return Err("a backslash in a help text that escapes nothing".to_owned());
            }
        }
        return Ok(Line::Help { metric, text: rest.to_owned() });
    }
    match rest {
        "counter" | "gauge" | "histogram" | "summary" | "untyped" => {
            Ok(Line::Type { metric, kind: rest.to_owned() })
        }
        other => Err(format!("{other:?} is no type")),
    }
}

fn parse_sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !is_metric_name(name) {
        return Err(format!("{name:?} is no metric's name"));
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next().ok_or("no value")?;
    let value = parse_number(value).ok_or_else(|| format!("{value:?} is no number"))?;
    if let Some(timestamp) = words.next()
        && timestamp.parse::<i64>().is_err()
    {
        return Err(format!("{timestamp:?} is no timestamp"));
    }
    if words.next().is_some() {
        return Err("something after the timestamp".to_owned());
    }
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// A number as Go reads it.
fn parse_number(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) => None,
        _ => text.parse().ok(),
    }
}

/// Reads what follows `{`, and gives what follows `}`.
fn parse_labels(text: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (name, after) = rest.split_once('=').ok_or("a label without a value")?;
        let name = name.trim();
        if !is_label_name(name) {
            return Err(format!("{name:?} is no label's name"));
        }
        let after = after.trim_start().strip_prefix('"').ok_or("a label's value without quotes")?;
        let (value, after) = parse_quoted(after)?;
        if labels.iter().any(|(other, _)| other == name) {
            return Err(format!("label {name:?} twice"));
        }
        labels.push((name.to_owned(), value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with('}') => {}
            None => return Err("labels without a comma between them".to_owned()),
        }
    }
}

/// Reads up to the closing quote, and gives what follows.
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
                    _ => return Err("a backslash in a label's value that escapes nothing".to_owned()),
                }
                length += 1;
            }
            c => value.push(c),
        }
    }
    Err("a label's value without an end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_with_escapes_and_timestamp_is_read() {
        let labels = vec![("a".to_owned(), "x\"y\\z\n".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(
            parse(r#"m_total{a="x\"y\\z\n", b=""} 1e+06 1700000000000"#),
            Ok(Line::Sample(Sample { name: "m_total".to_owned(), labels, value: 1e6 }))
        );
        assert!(matches!(parse("up 1"), Ok(Line::Sample(sample)) if sample.labels.is_empty()));
        assert!(matches!(parse("up{} +Inf"), Ok(Line::Sample(sample)) if sample.value.is_infinite()));
    }

    #[test]
    fn line_that_is_none_is_refused_with_what_is_wrong() {
        for (line, what) in [
            ("1m 1", "no metric's name"),
            ("m", "no value"),
            ("m{a=\"b\"} ", "no value"),
            ("m one", "no number"),
            ("m 1 now", "no timestamp"),
            ("m 1 2 3", "after the timestamp"),
            ("m{a} 1", "without a value"),
            ("m{a=b} 1", "without quotes"),
            ("m{a=\"b} 1", "without an end"),
            ("m{a=\"\\t\"} 1", "escapes nothing"),
            ("m{a:b=\"c\"} 1", "no label's name"),
            ("m{a=\"b\" c=\"d\"} 1", "without a comma"),
            ("m{a=\"b\",a=\"c\"} 1", "twice"),
            ("# TYPE m counters", "no type"),
            ("# HELP m-n x", "no metric's name"),
            ("# HELP m \\x", "escapes nothing"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn line_that_says_nothing_is_passed_over() {
        for line in ["", "  ", "# a comment", "#", "# EOF"] {
            assert_eq!(parse(line), Ok(Line::Other));
        }
    }
}
