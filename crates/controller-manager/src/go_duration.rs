//! Durations as Go writes them.
//!
//! Upstream counterpart: `time.ParseDuration`.

use std::time::Duration;

use thiserror::Error;

/// A text that is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum DurationError {
    /// It is not a sequence of numbers with units.
    #[error("not a duration such as 300ms, 1.5h or 2h45m")]
    Malformed,
    /// It begins with a minus sign, and is not zero.
    #[error("a negative duration makes no sense here")]
    Negative,
    /// It is longer than a Go duration can be, 292 years.
    #[error("too long a duration")]
    TooLong,
}

/// The longest that Go can express.
const LONGEST_NANOS: f64 = i64::MAX as f64;

/// The duration that `text` spells: decimal numbers, each with a unit, as in `1h15m30.918s`.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // The only number that needs no unit.
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let (number, tail) = split_at_first(rest, |c| !(c.is_ascii_digit() || c == '.'));
        let (unit, tail) = split_at_first(tail, |c| c.is_ascii_digit() || c == '.');
        // Rust's numbers are wider than Go's here, but not with digits and points alone.
        let number: f64 = number.parse().map_err(|_| DurationError::Malformed)?;
        nanos += number * nanos_in(unit).ok_or(DurationError::Malformed)?;
        rest = tail;
    }
    if nanos > LONGEST_NANOS {
        return Err(DurationError::TooLong);
    }
    let duration = Duration::from_nanos(nanos.round() as u64);
    if is_negative && !duration.is_zero() { Err(DurationError::Negative) } else { Ok(duration) }
}

fn split_at_first(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

fn nanos_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        // The sign for micro comes in two code points.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_in_any_of_gos_forms_is_understood() {
        let cases = [
            ("0", 0.0),
            ("12h", 43_200.0),
            ("1h15m30.918s", 4530.918),
            ("1.5h", 5400.0),
            ("+5s", 5.0),
            ("-0s", 0.0),
            ("300ms", 0.3),
            ("2us", 2e-6),
            ("2\u{b5}s", 2e-6),
            ("7ns", 7e-9),
            (".5m", 30.0),
            ("1s1s", 2.0),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
    }

    #[test]
    fn duration_that_is_none_is_refused() {
        for text in ["", "5", "s", "5x", "5 s", "1h 5m", "1e3s", "..5s", "-", "one", "5sx", "inf", "nan s"] {
            assert_eq!(parse(text), Err(DurationError::Malformed), "{text}");
        }
        assert_eq!(parse("-1s"), Err(DurationError::Negative));
        assert_eq!(parse("3000000h"), Err(DurationError::TooLong));
    }
}
